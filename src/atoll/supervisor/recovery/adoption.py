"""Takes over the machines that an earlier supervisor left."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from atoll.supervisor.lifecycle.checkpoint_files import read_flows
from atoll.supervisor.lifecycle.restore import PARTED_REASON
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.identity import woken_init
from atoll.supervisor.state.leases import length_after_use
from atoll.supervisor.storage.consistency import same_instant

if TYPE_CHECKING:
    from atoll.network import Links
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.pause import PausedWatcher
    from atoll.supervisor.lifecycle.run_plans import RunPlans
    from atoll.supervisor.lifecycle.unplug import Unplugs
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.recovery.row_repair import RowRepair
    from atoll.supervisor.state.leases import Leases
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import OperationRow, SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.checksums import CheckpointChecksums

_log = logging.getLogger(__name__)


class Adoption:
    """Adopts machines.

    Args:
        paths: Where disks and checkpoints are.
        leases: Computes leases.
        links: All links.
        egress: Sets their policies.
        plans: How machines run.
        running_machines: Finds and ends machines.
        agents: Calls the guests' agents.
        attachment: Gives the sandboxes their machines.
        watcher: Watches paused sandboxes.
        checksums: The checksums of checkpoints.
        repair: Marks sandboxes as crashed.
        unplugs: Keeps unplugged sandboxes so.
    """

    def __init__(
        self,
        *,
        paths: Paths,
        leases: Leases,
        links: Links,
        egress: EgressControl,
        plans: RunPlans,
        running_machines: RunningMachines,
        agents: Agents,
        attachment: Attachment,
        watcher: PausedWatcher,
        checksums: CheckpointChecksums,
        repair: RowRepair,
        unplugs: Unplugs,
    ) -> None:
        self._paths = paths
        self._leases = leases
        self._links = links
        self._egress = egress
        self._plans = plans
        self._running_machines = running_machines
        self._agents = agents
        self._attachment = attachment
        self._watcher = watcher
        self._checksums = checksums
        self._repair = repair
        self._unplugs = unplugs

    async def adopt(self, sandbox: Sandbox) -> None:
        """Take over the machine of a sandbox that runs or is paused, or mark the sandbox as crashed."""
        row = sandbox.row
        link = await self._links.adopt(row.link_id) if row.link_id else None
        if link is None:
            await self._running_machines.end_lost(row, self._paths.disk(row.sandbox_id, row.disk))
            await self._repair.mark_crashed(
                sandbox, "its network was lost: the host or its holder process ended"
            )
            return
        self._unplugs.heed(sandbox, was_cut=link.was_cut)
        self._egress.govern(link, row)
        disk = self._paths.disk(row.sandbox_id, row.disk)
        running = await self._running_machines.adopt(row, link, disk)
        if running is None:
            await link.aclose()
            await self._repair.mark_crashed(sandbox, "its processes ended while no supervisor ran")
            return
        try:
            stays = row.state == "paused" or sandbox.unplugged is not None
            runs = stays or await thaw_or_end(running)
        except BaseException:
            self._running_machines.let_go(running)
            raise
        if not runs:
            await self._running_machines.end(running)
            await link.aclose()
            await self._repair.mark_crashed(sandbox, "it could not be thawed after its supervisor had ended")
            return
        link.release()  # a suspend or a snapshot may have been cut short
        self._attachment.attach(sandbox, running)
        if row.state == "paused":
            sandbox.memory_untold = True  # its limits may have been changed before
            if sandbox.unplugged is None:
                self._watcher.watch(sandbox, running)
        _log.info("adopted sandbox %s", row.sandbox_id)

    async def keep_link(self, sandbox: Sandbox, link_id: str) -> bool:
        """Take over the link of a sleeping sandbox if the relay has kept its connections. Returns whether it has."""
        if not await self._links.carries(link_id):
            return False
        try:
            link = await self._links.adopt(link_id)
        except OSError as error:
            _log.warning("sandbox %s loses its connections: %s", sandbox.sandbox_id, error)
            return False
        if link is None:
            return False
        self._egress.govern(link, sandbox.row)
        sandbox.link = link
        return True

    async def finish_waking(self, sandbox: Sandbox, begun: OperationRow) -> None:
        """Finish a wake that was interrupted: its guest may have written to its disk already."""
        row = sandbox.row
        disk = self._paths.disk(row.sandbox_id, row.disk)
        link = await self._links.adopt(begun.link_id) if begun.link_id else None
        self._unplugs.heed(sandbox, was_cut=link is not None and link.was_cut)
        for machine_id, record in await self._running_machines.strays(self._plans.of(row)):
            found = row.but(machine_id=machine_id, machine=record, generation=row.generation + 1)
            if link is None:
                await self._running_machines.end_lost(found, disk)
                continue
            running = await self._running_machines.adopt(found, link, disk)
            if running is not None and await self._woken(sandbox, found, running):
                return
        if not await self.memory_counts(row, begun):
            await self._repair.mark_crashed(sandbox, PARTED_REASON)

    async def _woken(self, sandbox: Sandbox, row: SandboxRow, running: RunningMachine) -> bool:
        """Take over a machine from an interrupted wake.

        Returns False if it cannot be used; it has then ended.
        """
        checkpoint = self._paths.checkpoint(row.sandbox_id)
        self._egress.govern(running.link, row)
        try:
            wanted = woken_init(row, self._plans.image(row))
            await running.alive(self._agents.first(running.link, wanted), row.sandbox_id)
            if running.link.was_carried and row.link_id == running.link.link_id:
                running.link.release()  # it has kept its connections while it slept
            else:
                await running.link.reset_connections(read_flows(checkpoint))
            # The interrupted wake may not have finished this check.
            await asyncio.to_thread(self._checksums.check, checkpoint, small=False)
            lease = self._leases.woken(sandbox.row, length_after_use(row.lifecycle))
            await self._attachment.take_up(
                sandbox, running, generation=row.generation, reason=None, durable=True, freeing=True, **lease
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, its machine must not run on beside its memory
            _log.warning("cannot finish waking sandbox %s: %s", row.sandbox_id, error)
            await self._running_machines.end(running)
            return False
        return True

    async def memory_counts(self, row: SandboxRow, begun: OperationRow | None) -> bool:
        """Whether a sleeping sandbox, for which no machine runs any more, can continue from its memory."""
        checkpoint = self._paths.checkpoint(row.sandbox_id)
        if not checkpoint.is_dir():
            return False
        if row.engine_disk or begun is None or begun.kind != "wake":
            return True
        disk = self._paths.disk(row.sandbox_id, row.disk)
        return await asyncio.to_thread(same_instant, checkpoint, disk)
