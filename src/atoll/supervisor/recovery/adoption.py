"""Takes over the machines that an earlier supervisor left."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.supervisor.integrity.consistency import same_instant
from atoll.supervisor.lifecycle.checkpoint_files import read_flows
from atoll.supervisor.lifecycle.restore import PARTED_REASON
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.identity import woken_init
from atoll.supervisor.state.leases import length_after_use

if TYPE_CHECKING:
    from atoll.network import Links
    from atoll.supervisor.integrity.checksums import CheckpointChecksums
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.pause import PausedWatcher
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.lifecycle.unplug import Unplugs
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.recovery.row_repair import RowRepair
    from atoll.supervisor.state.leases import Leases
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import OperationRow, SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Adoption:
    """Adopts machines."""

    paths: Paths
    leases: Leases
    links: Links
    egress: EgressControl
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    agents: Agents
    attachment: Attachment
    watcher: PausedWatcher
    checksums: CheckpointChecksums
    repair: RowRepair
    unplugs: Unplugs

    async def adopt(self, sandbox: Sandbox) -> None:
        """Take over the machine of a sandbox that runs or is paused, or mark the sandbox as crashed."""
        row = sandbox.row
        link = await self.links.adopt(row.link_id) if row.link_id else None
        if link is None:
            await self.running_machines.end_lost(row, self.paths.disk(row.sandbox_id, row.disk))
            await self.repair.mark_crashed(
                sandbox, "its network was lost: the host or its holder process ended"
            )
            return
        self.unplugs.heed(sandbox, was_cut=link.was_cut)
        self.egress.govern(link, row)
        disk = self.paths.disk(row.sandbox_id, row.disk)
        running = await self.running_machines.adopt(row, link, disk)
        if running is None:
            await link.aclose()
            await self.repair.mark_crashed(sandbox, "its processes ended while no supervisor ran")
            return
        try:
            stays = row.state == "paused" or sandbox.unplugged is not None
            runs = stays or await thaw_or_end(running)
        except BaseException:
            self.running_machines.let_go(running)
            raise
        if not runs:
            await self.running_machines.end(running)
            await link.aclose()
            await self.repair.mark_crashed(sandbox, "it could not be thawed after its supervisor had ended")
            return
        link.release()  # a suspend or a snapshot may have been cut short
        self.attachment.attach(sandbox, running)
        if row.state == "paused":
            sandbox.memory_untold = True  # its limits may have been changed before
            if sandbox.unplugged is None:
                self.watcher.watch(sandbox, running)
        _log.info("adopted sandbox %s", row.sandbox_id)

    async def keep_link(self, sandbox: Sandbox, link_id: str) -> bool:
        """Take over the link of a sleeping sandbox if the relay has kept its connections. Returns whether it has."""
        if not await self.links.carries(link_id):
            return False
        try:
            link = await self.links.adopt(link_id)
        except OSError as error:
            _log.warning("sandbox %s loses its connections: %s", sandbox.sandbox_id, error)
            return False
        if link is None:
            return False
        self.egress.govern(link, sandbox.row)
        sandbox.link = link
        return True

    async def finish_waking(self, sandbox: Sandbox, begun: OperationRow) -> None:
        """Finish a wake that was interrupted: its guest may have written to its disk already."""
        row = sandbox.row
        disk = self.paths.disk(row.sandbox_id, row.disk)
        link = await self.links.adopt(begun.link_id) if begun.link_id else None
        self.unplugs.heed(sandbox, was_cut=link is not None and link.was_cut)
        for machine_id, record in await self.running_machines.strays(self.sandbox_planner.of(row)):
            found = row.but(machine_id=machine_id, machine=record, generation=row.generation + 1)
            if link is None:
                await self.running_machines.end_lost(found, disk)
                continue
            running = await self.running_machines.adopt(found, link, disk)
            if running is not None and await self._woken(sandbox, found, running):
                return
        if not await self.memory_counts(row, begun):
            await self.repair.mark_crashed(sandbox, PARTED_REASON)

    async def _woken(self, sandbox: Sandbox, row: SandboxRow, running: RunningMachine) -> bool:
        """Take over a machine from an interrupted wake.

        Returns False if it cannot be used; it has then ended.
        """
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        self.egress.govern(running.link, row)
        try:
            wanted = woken_init(row, self.sandbox_planner.image(row))
            await running.alive(self.agents.first(running.link, wanted), row.sandbox_id)
            if running.link.was_carried and row.link_id == running.link.link_id:
                running.link.release()  # it has kept its connections while it slept
            else:
                await running.link.reset_connections(read_flows(checkpoint))
            # The interrupted wake may not have finished this check.
            await asyncio.to_thread(self.checksums.check, checkpoint, small=False)
            lease = self.leases.woken(sandbox.row, length_after_use(row.lifecycle))
            await self.attachment.take_up(
                sandbox, running, generation=row.generation, reason=None, durable=True, freeing=True, **lease
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, its machine must not run on beside its memory
            _log.warning("cannot finish waking sandbox %s: %s", row.sandbox_id, error)
            await self.running_machines.end(running)
            return False
        return True

    async def memory_counts(self, row: SandboxRow, begun: OperationRow | None) -> bool:
        """Whether a sleeping sandbox, for which no machine runs any more, can continue from its memory."""
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        if not checkpoint.is_dir():
            return False
        if row.engine_disk or begun is None or begun.kind != "wake":
            return True
        disk = self.paths.disk(row.sandbox_id, row.disk)
        return await asyncio.to_thread(same_instant, checkpoint, disk)
