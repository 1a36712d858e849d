"""The files of a checkpoint: the engine's own, and the guest's view of the network."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from atoll.host import FileCopy, open_top
from atoll.network import Flow
from atoll.types.internal import from_json

FLOWS = "flows.json"
NAMES = "names.json"


def link_files(source: Path, target: Path) -> None:
    """Make the files of a checkpoint, which never change, appear in another directory too.

    A file is copied once it has the most links that the file system allows, for a state with very many forks.
    On ext4 that is 65,000.
    """
    for entry in source.iterdir():
        try:
            os.link(entry, target / entry.name)
        except OSError as error:
            if error.errno != errno.EMLINK:
                raise
            with open_top(source) as old, open_top(target) as new:
                FileCopy().copy(old, new, entry.name)


def write_flows(checkpoint: Path, flows: Sequence[Flow]) -> None:
    """Keep with a checkpoint which connections its guest believes to have."""
    (checkpoint / FLOWS).write_bytes(msgspec.json.encode(list(flows)))


def read_flows(checkpoint: Path) -> list[Flow]:
    """Return the flows of ``write_flows``; nothing if it kept nothing that can be read."""
    try:
        return from_json((checkpoint / FLOWS).read_bytes(), list[Flow])
    except (OSError, ValueError):
        return []


def write_names(checkpoint: Path, names: Mapping[str, str]) -> None:
    """Keep with a checkpoint which names its guest knows by address."""
    if names:
        (checkpoint / NAMES).write_bytes(msgspec.json.encode(names))


def read_names(checkpoint: Path) -> dict[str, str]:
    """Return the names of ``write_names``; nothing if it kept nothing that can be read."""
    try:
        return from_json((checkpoint / NAMES).read_bytes(), dict[str, str])
    except (OSError, ValueError):
        return {}
