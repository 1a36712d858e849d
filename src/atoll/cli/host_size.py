"""Says when a limit is more than this host has, so that it limits nothing."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from atoll.cli.output import note
from atoll.cli.text import size
from atoll.types import Limits


def note_beyond_host(limits: Limits) -> None:
    """Print a note for each limit that is more than this host has.

    The size of a server's host is unknown here.
    """
    if (limits.memory_mib is None and limits.vcpus is None) or not sys.platform.startswith("linux"):
        return
    from atoll.host import read_memory
    from atoll.sdk import Login

    if Login.where() is not None:
        return
    for text in beyond_host(limits, read_memory().total_bytes, len(os.sched_getaffinity(0))):
        note(text)


def beyond_host(limits: Limits, memory_bytes: int, processors: int) -> Iterator[str]:
    """Return the notes on limits for a host with this much memory and this many processors."""
    if limits.memory_mib is not None and limits.memory_mib << 20 > memory_bytes:
        yield (
            f"--memory {size(limits.memory_mib << 20)}: this host has {size(memory_bytes)}, and the sandbox gets "
            "at most the free part"
        )
    if limits.vcpus is not None and limits.vcpus > processors:
        has = "1 processor" if processors == 1 else f"{processors} processors"
        yield f"--cpus {limits.vcpus:g}: this host has {has}, and the sandbox gets at most that"
