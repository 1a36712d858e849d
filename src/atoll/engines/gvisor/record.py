"""The record of a machine, with which another process can take it over."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import EngineError
from atoll.types import Limits
from atoll.types.internal import from_json

if TYPE_CHECKING:
    from atoll.engines.gvisor.processes import HostProcess


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where a machine is.

    ``*_started`` are ticks since boot, which tell a process from a later one with the same pid. ``place`` is
    where its root appears if it was a prestarted machine. ``earlier_pages`` is as in ``MachinePlan``.
    """

    machine_id: str
    state_dir: str
    sentry_pid: int
    sentry_started: int
    gofer_pid: int
    gofer_started: int
    limits: Limits = Limits()
    place: str | None = None
    earlier_pages: str | None = None

    def encode(self) -> bytes:
        """Return the record as JSON."""
        return msgspec.json.encode(self)


def record_of(
    machine_id: str,
    state_dir: Path,
    sentry: HostProcess,
    gofer: HostProcess,
    limits: Limits,
    place: Path | None,
    earlier_pages: Path | None = None,
) -> bytes:
    """Return the record of a machine with these processes, see ``Machine.record``."""
    return MachineRecord(
        machine_id=machine_id,
        state_dir=str(state_dir),
        sentry_pid=sentry.pid,
        sentry_started=sentry.started_ticks,
        gofer_pid=gofer.pid,
        gofer_started=gofer.started_ticks,
        limits=limits,
        place=None if place is None else str(place),
        earlier_pages=None if earlier_pages is None else str(earlier_pages),
    ).encode()


def decode_record(record: bytes) -> MachineRecord:
    """Read a result of ``MachineRecord.encode``.

    Raises:
        EngineError: It is not a record.
    """
    try:
        return from_json(record, MachineRecord)
    except ValueError as error:
        raise EngineError(f"this is not a machine's record: {error}") from None
