"""Frees the old parts of a sandbox that has continued from another state."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import AtollError

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.crash_checkpoint import CrashCheckpoints
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.storage.trash import Trash

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Discards:
    """Frees the machines, links, memories and disks that sandboxes have left behind."""

    paths: Paths
    running_machines: RunningMachines
    trash: Trash
    layer_gc: LayerGC
    crash_checkpoints: CrashCheckpoints

    async def discard(
        self,
        sandbox: Sandbox,
        before: SandboxRow,
        running: RunningMachine | None,
        link: Link | None,
        now: Path,
    ) -> None:
        """Free a sandbox's old parts: its machine, or else its link, and its memory and disk.

        The sandbox already goes on from another state, so this only logs a failure.

        Args:
            before: Its row with the old parts.
            now: The checkpoint that it goes on from.
        """
        if running is not None:
            await self.running_machines.end(running)
            link = running.link
        try:
            if link is not None:
                await link.aclose()
            self.trash.take(self.paths.checkpoint(sandbox.sandbox_id))
            self.trash.take(self.paths.disk(sandbox.sandbox_id, before.disk))
            await self.layer_gc.collect(wait=False)
        except (AtollError, OSError) as error:
            _log.warning(
                "cannot clean up what sandbox %s had before: %s",
                sandbox.sandbox_id,
                error,
            )
        self.crash_checkpoints.keep(sandbox.row, now)
