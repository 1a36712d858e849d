"""The programs that come with this package: ``runsc``, the guest agent, the puller of images and the edge."""

from __future__ import annotations

import os
from pathlib import Path

from atoll.errors import HostError

_BIN = Path(__file__).resolve().parent.parent / "_bin"


def _program(name: str) -> Path:
    path = _BIN / name
    if not os.access(path, os.X_OK):
        raise HostError(
            f"the program {path} is missing or not executable",
            hint="install atoll again from a wheel, or, in a source tree, build it with `pip install -e .`",
        )
    return path


def runsc_path() -> Path:
    """Return the gVisor program of this version.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("runsc")


def puller_path() -> Path:
    """Return the program that talks to registries and unpacks layers.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-puller")


def edge_path() -> Path:
    """Return the program that judges what leaves sandboxes, and holds secrets.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-edge")


def agent_path() -> Path:
    """Return the program that is process 1 of every sandbox.

    Raises:
        HostError: The package was installed without it.
    """
    return _program("atoll-agent")
