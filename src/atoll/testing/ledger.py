"""A ledger of atoll's resources on the host, for a test to show that it left nothing."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import msgspec

from atoll.host import Home

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


class Ledger(msgspec.Struct, frozen=True):
    """Facts about one home at one moment; two equal ledgers mean that nothing was left behind.

    ``processes`` are living ones with the home's directory on their command line, as pids and program names.
    ``mounts`` are below it, in this mount namespace. ``cgroups`` are those of its machines.
    """

    processes: frozenset[str]
    mounts: frozenset[str]
    cgroups: frozenset[str]


def take_ledger(home: Home) -> Ledger:
    """Take the ledger of a home that no other test uses."""
    groups = [str(group) for root in group_roots(home) for group in _directories(root)]
    return Ledger(
        processes=frozenset(_processes(os.fsencode(home.path))),
        mounts=frozenset(_mounts(str(home.path))),
        cgroups=frozenset(groups),
    )


def group_roots(home: Home) -> list[Path]:
    """Return the directories below which the home's cgroups are, one for each hierarchy that has one."""
    name = hashlib.sha256(os.fsencode(home.path)).hexdigest()[:12]
    # Other cgroups come and go during this search; only a walk tolerates that.
    found = (Path(path) / name for path, names, _ in os.walk(_CGROUPS) if name in names)
    return [path for path in found if path.parent.name == "atoll"]


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


def _directories(root: Path) -> list[Path]:
    return [Path(path) / name for path, names, _ in os.walk(root) for name in names]
