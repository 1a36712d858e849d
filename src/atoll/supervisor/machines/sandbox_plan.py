"""The plan of a sandbox: what its next machine runs, and with what."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.supervisor.state.rows import Versions
from atoll.types import Limits


class VolumeBind(msgspec.Struct, frozen=True):
    """A volume's directory, its path in the guest, and whether the guest may only read it, or has a quota."""

    source: Path
    target: str
    read_only: bool
    limited: bool


class SandboxPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and where. ``SandboxPlanner`` makes it from a row, ``MachinePlanner`` an engine's plan from it.

    ``image`` holds the image's layers, the top one first. ``disk`` is the directory of the changes: a
    writable layer, or with ``engine_disk`` the engine's own files. ``checkpoint`` None boots.
    """

    sandbox_id: str
    image: tuple[Path, ...]
    stack: tuple[str, ...]
    disk: Path
    hostname: str
    limits: Limits
    versions: Versions
    checkpoint: Path | None = None
    read_ahead: bool = True
    being_written: bool = False
    engine_disk: bool = False
    keep_free_percent: int = 0
    volumes: tuple[VolumeBind, ...] = ()


def earlier_pages_directory(disk: Path, machine_id: str) -> Path:
    """Where a machine on a disk has the files of earlier checkpoints, see ``MachinePlan.earlier_pages``."""
    return disk.with_name(f"pages-{machine_id}")


def changes_of(disk: Path) -> Path:
    """Where an engine keeps the guest's changes, for a disk that the engine keeps."""
    return disk / "changes"
