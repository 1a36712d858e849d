"""Restores copies: a machine continues from a checkpoint with a new identity and its own disk."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.engines import MachineEndedError
from atoll.errors import SandboxCrashedError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.checkpoint_files import read_flows, read_names
from atoll.supervisor.lifecycle.memory_admission import checkpoint_bytes
from atoll.supervisor.machines.identity import branched_init
from atoll.supervisor.machines.prestarted import PrestartedDiedError
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.sandbox import Sandbox

if TYPE_CHECKING:
    from atoll.network import Link, Links
    from atoll.snapshots import Layers
    from atoll.supervisor.lifecycle.attachment import Follower
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.memory_admission import MemoryAdmission
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.machines.sandbox_plan import SandboxPlan
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.storage.trash import Trash


@dataclass(kw_only=True, eq=False, repr=False)
class Clones:
    """Restores copies."""

    paths: Paths
    images: SupervisorImages
    layers: Layers
    links: Links
    egress: EgressControl
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    volume_monitor: Follower
    memory: MemoryAdmission
    trash: Trash

    async def clone(
        self, row: SandboxRow, checkpoint: Path, env_inside: dict[str, str], *, being_written: bool = False
    ) -> tuple[Sandbox, RunningMachine]:
        """Restore a copy with a new disk and link. It runs when this returns; its row is not stored yet.

        The row's ``stack`` belongs to the checkpoint's disk. The sandbox's stack may differ, see
        ``Layers.branch``. ``env_inside`` is the sandbox environment in the checkpoint's memory;
        ``being_written`` is as in ``MachinePlan``.

        Raises:
            SandboxCrashedError: The guest ended as soon as it ran.
            HostMemoryError: The host has too little memory left.

        Postcondition: on any exception nothing of the copy is left.
        """
        if not being_written:  # else its original may stand still
            await self.trash.make_room()
        try:
            async with self.memory.admitted(row, checkpoint_bytes(checkpoint)):
                try:
                    return await self._clone(row, checkpoint, env_inside, being_written)
                except PrestartedDiedError:
                    return await self._clone(row, checkpoint, env_inside, being_written)
        except (MachineEndedError, SandboxCrashedError) as error:
            raise SandboxCrashedError(
                "the restored sandbox ended as soon as it ran",
                hint="try again; if it ends each time, its process 1 had ended before: use an earlier snapshot",
                sandbox_id=row.sandbox_id,
            ) from error

    async def _clone(
        self, row: SandboxRow, checkpoint: Path, env_inside: dict[str, str], being_written: bool
    ) -> tuple[Sandbox, RunningMachine]:
        disk = self.paths.disk(row.sandbox_id, row.disk)
        disk.parent.mkdir(mode=0o700, exist_ok=True)
        link: Link | None = None
        try:
            if row.engine_disk:
                disk.mkdir(mode=0o700)
            else:
                stack = await to_the_end(asyncio.to_thread(self.layers.branch, disk, row.stack))
                row = row.but(stack=tuple(stack))
            link = await self.links.take()
            self.egress.govern(link, row)
            await link.guest.know(read_names(checkpoint))
            # Copies share the memory pages that none of them touches.
            plan = self.sandbox_planner.of(
                row, checkpoint=checkpoint, read_ahead=False, being_written=being_written
            )
            running = await self._begin(row, plan, env_inside, link)
        except BaseException:
            await to_the_end(self._give_up(link, disk))
            raise
        sandbox = Sandbox(row.but(**running.columns()))
        # The copy runs from now on. Its row may be stored much later, when all copies of a fork are there.
        self.volume_monitor.follow(sandbox, running)
        return sandbox, running

    async def undo(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """End a new copy, and free its link and disk."""
        await self.running_machines.end(running)
        await self._give_up(running.link, running.disk)

    async def _begin(
        self, row: SandboxRow, plan: SandboxPlan, env_inside: dict[str, str], link: Link
    ) -> RunningMachine:
        wanted = branched_init(row, env_inside, self.images.facts(row.image_digest))
        running = await self.running_machines.begin(plan, link, wanted)
        try:
            # The guest still considers connections open that belong to its original.
            await link.reset_connections(read_flows(plan.checkpoint) if plan.checkpoint else [])
        except BaseException:
            await to_the_end(self.running_machines.end(running))
            raise
        return running

    async def _give_up(self, link: Link | None, disk: Path) -> None:
        if link is not None:
            await link.aclose()
        await self.trash.take_unmounted(disk)
        others = [entry for entry in disk.parent.iterdir() if entry.is_dir()] if disk.parent.exists() else []
        if not others:
            self.trash.take(disk.parent)
        await self.trash.make_room()
