"""Writes and checks checksum files in a separate process with low priority."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from atoll.errors import HostError, NoSpaceError
from atoll.host.processes import RunProgramError, run_program
from atoll.host.trees.checksum_program import DISK_FULL
from atoll.host.trees.checksums import CheckedTree
from atoll.types.internal import from_json


class _Done(msgspec.Struct, frozen=True):
    done: int


async def checksum_tree(
    tree: Path, checksums: Path, *, bytes_s: float = 0, came: Callable[[int], None] | None = None
) -> CheckedTree:
    """Write the checksum file ``checksums`` of a tree, which must not change. Cancelling ends it.

    The file is complete only if this returns without damages, so use a temporary name until then.

    Args:
        bytes_s: The most bytes to read per second, counting 32 KiB extra for each small file; 0 is no limit.
        came: Called with the number of bytes read, twice per second.

    Raises:
        NoSpaceError: The disk is full.
        HostError: It failed.
    """
    return await _run("write", tree, checksums, bytes_s, came)


async def check_tree(
    tree: Path, checksums: Path, *, came: Callable[[int], None] | None = None
) -> CheckedTree:
    """Compare a tree with its checksum file. The tree is read from the disk. Cancelling ends it.

    Raises:
        HostError: It failed.
    """
    return await _run("check", tree, checksums, 0, came)


async def _run(
    step: Literal["write", "check"],
    tree: Path,
    checksums: Path,
    bytes_s: float,
    came: Callable[[int], None] | None,
) -> CheckedTree:
    argv = [
        sys.executable,
        "-P",
        "-m",
        "atoll.host.trees.checksum_program",
        step,
        str(tree),
        str(checksums),
        str(bytes_s),
    ]
    try:
        result = await run_program(argv, timeout_s=None, on_stderr=_Counts(came).feed)
        if result.exit_code == DISK_FULL:
            raise NoSpaceError(
                f"no space is left for the checksums of {tree}", hint="free some space under the home"
            )
        return from_json(result.stdout, CheckedTree)
    except RunProgramError as error:
        raise HostError(f"{tree} cannot be checked: {error}") from error
    except msgspec.MsgspecError:
        said = result.stderr[-500:].decode(errors="replace")
        raise HostError(f"{tree} cannot be checked: the checksum program ended: {said}") from None


class _Counts:
    """Reads the newest count from pieces of lines."""

    def __init__(self, tell: Callable[[int], None] | None) -> None:
        self._tell = tell
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines[-1:] if self._tell else ():
            try:
                count = from_json(line, _Done).done
            except msgspec.MsgspecError:
                continue
            if self._tell:
                self._tell(count)
