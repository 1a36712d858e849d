"""Seals made and compared by a program that gives way to others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import msgspec

from atoll.errors import HostError, NoSpaceError
from atoll.host.processes import RunProgramError, run_program
from atoll.host.trees.checksum_program import DISK_FULL
from atoll.host.trees.checksums import SealedTree


class _Done(msgspec.Struct, frozen=True):
    done: int


async def seal_tree(
    tree: Path, seal: Path, *, bytes_s: float = 0, came: Callable[[int], None] | None = None
) -> SealedTree:
    """Note in the file ``seal`` what a tree is, which nobody changes. Cancelling ends it.

    The file is complete only when this returns without damages, so give it a name of its own until then.

    Args:
        bytes_s: The most bytes a second to read, small files counted as 32 KiB more; 0 is no bound.
        came: Called with how many bytes have been read, twice a second.

    Raises:
        NoSpaceError: The disk is full.
        HostError: It could not be done.
    """
    return await _run("seal", tree, seal, bytes_s, came)


async def check_tree(tree: Path, seal: Path, *, came: Callable[[int], None] | None = None) -> SealedTree:
    """Compare a tree with its seal, reading what the disk has. Cancelling ends it.

    Raises:
        HostError: It could not be done.
    """
    return await _run("check", tree, seal, 0, came)


async def _run(
    step: Literal["seal", "check"],
    tree: Path,
    seal: Path,
    bytes_s: float,
    came: Callable[[int], None] | None,
) -> SealedTree:
    argv = [
        sys.executable,
        "-P",
        "-m",
        "atoll.host.trees.checksum_program",
        step,
        str(tree),
        str(seal),
        str(bytes_s),
    ]
    try:
        result = await run_program(argv, timeout_s=None, on_stderr=_Counts(came).feed)
        if result.exit_code == DISK_FULL:
            raise NoSpaceError(
                f"no space is left for the seal of {tree}", hint="free some space under the home"
            )
        return msgspec.json.decode(result.stdout, type=SealedTree)
    except RunProgramError as error:
        raise HostError(f"{tree} cannot be examined: {error}") from error
    except msgspec.MsgspecError:
        said = result.stderr[-500:].decode(errors="replace")
        raise HostError(f"{tree} cannot be examined: the program for it ended: {said}") from None


class _Counts:
    """Reads the newest count out of pieces of lines."""

    def __init__(self, tell: Callable[[int], None] | None) -> None:
        self._tell = tell
        self._rest = b""

    def feed(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines[-1:] if self._tell else ():
            try:
                count = msgspec.json.decode(line, type=_Done).done
            except msgspec.MsgspecError:
                continue
            if self._tell:
                self._tell(count)
