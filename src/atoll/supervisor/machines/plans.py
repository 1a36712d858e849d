"""What a running machine is to run, and on what."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.supervisor.state.rows import Versions
from atoll.types import Limits


class VolumeMount(msgspec.Struct, frozen=True):
    """A volume's directory, and the path where it appears in the guest."""

    source: Path
    target: str


class RunPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What is to run where. ``image`` are its layers, the top one first. ``disk`` is the directory of what is changed:
    a writable layer, or with ``engine_disk`` what the engine keeps there. ``checkpoint`` None boots.
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
    volumes: tuple[VolumeMount, ...] = ()


def changes_of(disk: Path) -> Path:
    """Where an engine keeps what the guest changes, of a disk that is the engine's own."""
    return disk / "changes"
