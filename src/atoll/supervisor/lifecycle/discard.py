"""Frees what a sandbox had before it continued from something else."""

from __future__ import annotations

import logging
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


class Discards:
    """Frees the machines, links, memories and disks that sandboxes have left behind.

    Args:
        paths: Where memories and disks are.
        running_machines: Ends machines.
        trash: Erases files.
        layer_gc: Erases layers that nothing needs.
        crash_checkpoints: Keeps checkpoints for use after a crash.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        running_machines: RunningMachines,
        trash: Trash,
        layer_gc: LayerGC,
        crash_checkpoints: CrashCheckpoints,
    ) -> None:
        self._paths = paths
        self._running_machines = running_machines
        self._trash = trash
        self._layer_gc = layer_gc
        self._crash_checkpoints = crash_checkpoints

    async def discard(
        self,
        sandbox: Sandbox,
        before: SandboxRow,
        running: RunningMachine | None,
        link: Link | None,
        now: Path,
    ) -> None:
        """Free what a sandbox had: its machine, or the link that it kept, its memory and its disk.

        The sandbox already goes on from something else, so a failure here is only logged.

        Args:
            before: Its row when it had that.
            now: The checkpoint that it goes on from.
        """
        if running is not None:
            await self._running_machines.end(running)
            link = running.link
        try:
            if link is not None:
                await link.aclose()
            self._trash.take(self._paths.checkpoint(sandbox.sandbox_id))
            self._trash.take(self._paths.disk(sandbox.sandbox_id, before.disk))
            await self._layer_gc.collect(wait=False)
        except (AtollError, OSError) as error:
            _log.warning(
                "cannot clean up what sandbox %s had before: %s",
                sandbox.sandbox_id,
                error,
            )
        self._crash_checkpoints.keep(sandbox.row, now)
