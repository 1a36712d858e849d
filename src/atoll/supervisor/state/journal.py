"""Writes the events of a sandbox's life into its log, beside what its guest writes there, and into the audit log."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from atoll.host import append_log, forget_log_head
from atoll.supervisor.state.acts import Acts
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow

_LOG_MOST_BYTES = 16 << 20
_LOG_KEEP_BYTES = 4 << 20
_LOOK_S = 2.0
_log = logging.getLogger(__name__)

_ARRIVED = {
    ("paused", "running"): "resumed",
    ("suspended", "running"): "woken",
    ("running", "paused"): "paused",
    ("running", "suspended"): "suspended",
    ("paused", "suspended"): "suspended",
}


@dataclass(eq=False, repr=False)
class Journal:
    """Writes a line for each change of a sandbox into its log and into the audit log, and keeps logs small.

    A log that cannot be written stops no sandbox.

    Args:
        path: Returns the path of a sandbox's log.
        clock: Returns Unix seconds.
    """

    path: Callable[[str], Path]
    acts: Acts
    clock: Callable[[], float]

    def changed(self, old: SandboxRow | None, new: SandboxRow) -> None:
        """Log the change of a sandbox's row, or a new row."""
        if event := told(old, new):
            self.acts.arrived(event.verb, old, new)
            if event.line:
                self.tell(new.sandbox_id, event.line)
        if old is not None:
            self.acts.changed(old, new)

    def stored(self, snapshot: SnapshotRow) -> None:
        """Log that a snapshot was made."""
        self.acts.stored(snapshot)
        kind = "automatic snapshot" if snapshot.automatic else "snapshot"
        self.tell(snapshot.sandbox_id, f"{kind} {snapshot.called} created")

    async def keep_small(self, sandbox_ids: Callable[[], Iterable[str]]) -> None:
        """Drop the oldest part of each log that is over 16 MiB. Never returns."""
        refused: set[str] = set()
        while True:
            await asyncio.sleep(_LOOK_S)
            for sandbox_id in set(sandbox_ids()) - refused:
                try:
                    forget_log_head(
                        self.path(sandbox_id), most_bytes=_LOG_MOST_BYTES, keep_bytes=_LOG_KEEP_BYTES
                    )
                except OSError as error:
                    refused.add(sandbox_id)
                    _log.warning("cannot shorten the log of sandbox %s: %s", sandbox_id, error)

    def tell(self, sandbox_id: str, line: str) -> None:
        """Write a line about a sandbox into its log."""
        moment = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(self.clock()))
        try:
            append_log(self.path(sandbox_id), f"{moment} sandbox {line}")
        except OSError as error:
            _log.warning("cannot write the log of sandbox %s: %s", sandbox_id, error)


class Event(NamedTuple):
    """What has happened to a sandbox: a verb for the audit log, and a line for its own log, if it gets one."""

    verb: str
    line: str = ""


def told(old: SandboxRow | None, new: SandboxRow) -> Event | None:
    """What a change of a sandbox's row tells; None if it is no event."""
    if old is None:
        if new.generation == 1:
            return Event("created", f"created from image {new.image}")
        return Event("copied", "created as a copy, memory and disk")
    if new.state == "killed":
        return None if old.state == "killed" else Event("killed")
    if (old.unplugged is None) != (new.unplugged is None):
        if new.unplugged is None:
            return Event("replugged", "replugged")
        return Event("unplugged", f"unplugged: {new.unplugged.reason}")
    if old.disk != new.disk and new.recovered == old.recovered:
        return Event("rolled-back", f"rolled back to snapshot {new.snapshot_id}")
    # A crash shows in the row in memory before the row is stored; its machine is removed in the same step.
    if new.state == "crashed" and (old.state != "crashed" or old.machine_id is not None):
        return Event("crashed", f"crashed: {new.reason}")
    if new.state == "suspended" and not new.has_memory and old.has_memory:
        return Event("stopped", "stopped: its disk is kept, its memory is not")
    if new.state == "running" and new.recovered is not None and new.recovered != old.recovered:
        return Event("recovered", new.recovered.outcome)
    if new.state == "running" and not old.has_memory:
        return Event("booted", "booted from its disk")
    verb = _ARRIVED.get((old.state, new.state))
    return None if verb is None else Event(verb, verb)
