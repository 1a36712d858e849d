"""Gives a new sandbox its first machine: warm or newly booted."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.memory_admission import BOOT_BYTES
from atoll.supervisor.machines.identity import taken_init
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.storage.trash import erase

if TYPE_CHECKING:
    from atoll.network import Links
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.boot import Boots
    from atoll.supervisor.lifecycle.callers import Caller
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.memory_admission import MemoryAdmission
    from atoll.supervisor.lifecycle.turns import Turns
    from atoll.supervisor.lifecycle.warm_machine import Warm
    from atoll.supervisor.lifecycle.warm_pool import WarmPool
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.storage.images import ImageFacts
    from atoll.supervisor.tenants.models import Models
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.types import Delegation


@dataclass(kw_only=True, eq=False, repr=False)
class FirstMachines:
    """Gives new sandboxes their first machines."""

    inventory: Inventory
    paths: Paths
    quotas: TeamQuotas
    models: Models
    links: Links
    egress: EgressControl
    boots: Boots
    running_machines: RunningMachines
    agents: Agents
    attachment: Attachment
    pool: WarmPool
    turns: Turns
    memory: MemoryAdmission

    async def start(self, row: SandboxRow, facts: ImageFacts, caller: Caller, *, warm: bool) -> Sandbox:
        """Start the sandbox of a row, and store the row.

        Args:
            facts: The image that it is of.
            caller: The client that waits for it.
            warm: Whether a warm machine will do.

        Raises:
            HostMemoryError: The host has no memory for it.

        Postcondition: on any exception nothing of the sandbox is left.
        """
        try:
            return (await self._take(row, facts) if warm else None) or await self._boot(row, caller)
        finally:
            self.pool.refill(facts.digest)

    async def _take(self, row: SandboxRow, facts: ImageFacts) -> Sandbox | None:
        # The memory of a warm machine is in use already, but its programs will want more.
        async with self.memory.admitted(row, 0):
            ready = await self.pool.take(facts.digest)
            return None if ready is None else await self._dress(ready, row, facts)

    async def _dress(self, warm: Warm, blank: SandboxRow, facts: ImageFacts) -> Sandbox | None:
        """Turn a warm machine into the wanted sandbox. None if that failed: the machine is then discarded.

        Its id and disk were chosen when the machine was made.
        """
        running = warm.running
        row = blank.but(
            sandbox_id=warm.sandbox_id,
            machine_uid=warm.machine_uid,
            versions=warm.versions,
            **running.columns(),
        )
        self.quotas.known_as(blank.sandbox_id, row.sandbox_id)
        try:
            models = await self.models.renamed(row.models, row.sandbox_id)
            row = row.but(models=models, delegation=_given_to(row, blank.sandbox_id))
            sandbox = Sandbox(row)
            with self.inventory.pins.during(row.sandbox_id, facts.digest):
                self.egress.govern(running.link, row)
                if wanted := taken_init(row, facts.env):
                    await running.alive(self.agents.init(running.link, wanted), row.sandbox_id)
                await self.boots.start_program(row, running)
                await self.inventory.add(sandbox)
        except AtollError:
            await self.pool.discard(warm)
            self.quotas.known_as(row.sandbox_id, blank.sandbox_id)
            return None
        except BaseException:
            await to_the_end(self.pool.discard(warm))
            raise
        self.attachment.attach(sandbox, running)
        return sandbox

    async def _boot(self, row: SandboxRow, caller: Caller) -> Sandbox:
        with self.inventory.pins.during(row.sandbox_id, row.image_digest):
            admitted = self.memory.admitted(row, BOOT_BYTES)
            async with self.turns.turn(), admitted, contextlib.AsyncExitStack() as undo:
                caller.check()
                directory = self.paths.sandbox(row.sandbox_id)
                directory.mkdir(mode=0o700)
                undo.push_async_callback(lambda: to_the_end(erase(directory)))
                link = await self.links.take()
                undo.push_async_callback(lambda: to_the_end(link.aclose()))
                self.egress.govern(link, row)
                running = await self.boots.boot(row, link)
                undo.push_async_callback(lambda: to_the_end(self.running_machines.end(running)))
                sandbox = Sandbox(row.but(**running.columns()))
                await self.boots.start_program(row, running)
                await self.inventory.add(sandbox)
                undo.pop_all()  # from now on it is a sandbox
                self.attachment.attach(sandbox, running)
                return sandbox


def _given_to(row: SandboxRow, before: str) -> Delegation | None:
    """What a sandbox acts under that got another id while it was made: if that is its own, it names the new id."""
    delegation = row.delegation
    if delegation is None or delegation.audience != before:
        return delegation
    return msgspec.structs.replace(delegation, audience=row.sandbox_id)
