"""Makes warm machines: booted, with a ready agent, waiting to become sandboxes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.host import to_the_end
from atoll.supervisor.machines.default_limits import KEEP_FREE_PERCENT
from atoll.supervisor.machines.identity import pool_init
from atoll.supervisor.machines.sandbox_plan import SandboxPlan
from atoll.supervisor.state.ids import new_id, new_machine_uid
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.rows import Versions
from atoll.supervisor.state.running_machine import RunningMachine
from atoll.supervisor.storage.trash import erase

if TYPE_CHECKING:
    from atoll.network import Link, Links
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.binaries import Programs
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.types import Limits


@dataclass(frozen=True)
class Warm:
    """A warm machine that belongs to no sandbox yet. The sandbox that takes it gets its id and disk."""

    sandbox_id: str
    machine_uid: str
    versions: Versions
    running: RunningMachine


@dataclass(kw_only=True, eq=False, repr=False)
class WarmMachines:
    """Makes and discards warm machines with default limits.

    Args:
        nameserver: The name server that guests use.
        engine_disks: Whether the engine keeps the disks of new sandboxes.
    """

    inventory: Inventory
    paths: Paths
    programs: Programs
    images: SupervisorImages
    links: Links
    running_machines: RunningMachines
    agents: Agents
    default_limits: Limits
    nameserver: str
    engine_disks: bool

    def is_usable(self, warm: Warm) -> bool:
        """Whether a warm machine still runs, and with the current programs."""
        return not warm.running.gone.is_set() and warm.versions == self.programs.current

    async def make(self, digest: str) -> Warm:
        """Boot a machine of an image."""
        sandbox_id, machine_uid = new_id(), new_machine_uid()
        directory = self.paths.sandbox(sandbox_id)
        # Do this first: the image may be unreadable, and a failure here would leave a link behind.
        plan = self._plan(sandbox_id, digest)
        link = await self.links.take()
        running: RunningMachine | None = None
        try:
            with self.inventory.pins.during(sandbox_id, digest):
                directory.mkdir(mode=0o700)
                facts = self.images.facts(digest)
                wanted = pool_init(sandbox_id, machine_uid, facts, self.nameserver)
                running = await self.running_machines.begin(plan, link, wanted)
                await self.agents.warm(link, facts.user)
        except BaseException:
            await to_the_end(self._give_up(running, link, directory))
            raise
        return Warm(sandbox_id, machine_uid, plan.versions, running)

    def _plan(self, sandbox_id: str, digest: str) -> SandboxPlan:
        limits, engine_disk = self.default_limits, self.engine_disks
        if engine_disk:
            limits = msgspec.structs.replace(limits, disk_mib=None)
        return SandboxPlan(
            sandbox_id=sandbox_id,
            image=self.images.facts(digest).lowers,
            stack=(),
            disk=self.paths.disk(sandbox_id, FIRST_DISK),
            hostname=sandbox_id,
            limits=limits,
            keep_free_percent=0 if engine_disk else KEEP_FREE_PERCENT,
            versions=self.programs.current,
            engine_disk=engine_disk,
        )

    async def _give_up(self, running: RunningMachine | None, link: Link, directory: Path) -> None:
        if running is not None:
            await self.running_machines.end(running)
        await link.aclose()
        await erase(directory)

    async def discard(self, warm: Warm) -> None:
        """End a warm machine and erase its disk."""
        with self.inventory.pins.during(warm.sandbox_id):
            await self.running_machines.end(warm.running)
            await warm.running.link.aclose()
            await erase(self.paths.sandbox(warm.sandbox_id))
