"""The host's books: what of ours is on it, so that a test can show that it left nothing."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class Ledger(msgspec.Struct, frozen=True):
    """Facts about one directory at one instant; two equal ledgers mean that nothing was left behind.

    ``processes`` are living ones with the directory on their command line, as numbers and program names;
    ``mounts`` lie below it, in this mount namespace; ``cgroups`` have a name in ``names``.
    """

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]


def take_ledger(directory: Path, names: frozenset[str] = frozenset()) -> Ledger:
    """Read the books.

    Args:
        directory: Everything that belongs to a test lies in it, and no other test uses it.
        names: Ids of machines, which are names of their cgroups.
    """
    return Ledger(
        processes=frozenset(_processes(os.fsencode(directory))),
        mounts=frozenset(_mounts(str(directory))),
        cgroups=frozenset(_cgroups(names)),
    )


def _processes(directory: bytes) -> list[str]:
    found = []
    for entry in _PROC.iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if directory in line:
            found.append(f"{entry.name} {line.split(bytes(1))[0].decode(errors='replace')}")
    return found


def _mounts(directory: str) -> list[str]:
    points = [line.split()[4] for line in (_PROC / "self" / "mountinfo").read_text().splitlines()]
    return [point for point in points if point.startswith(directory)]


def _cgroups(names: frozenset[str]) -> list[str]:
    if not names:
        return []
    return [path for path, _, _ in os.walk(_CGROUPS) if Path(path).name in names]
