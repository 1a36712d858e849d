"""Notices guests that do not answer, reports them, and ends a guest whose lifecycle asks for recovery."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.protocol import shortage_of

if TYPE_CHECKING:
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.clock import Clock
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox

_LOOK_S = 5.0
# Questions a second, for all guests of a home.
_ASKED_PER_S = 20
_AT_ONCE = 16
# How often in a row a guest must not have answered.
_TRIES = 2
# How long a guest may be silent before it counts as crashed, if its lifecycle asks for recovery without a
# use.
GIVEN_UP_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class UnresponsiveGuests:
    """Asks the agents of all running guests now and then, in one task.

    Args:
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    agents: Agents
    clock: Clock
    tell: Callable[[str, str], None]
    # Since when guests have not answered, by machine, on a clock that stands still while the host sleeps.
    _silent: dict[str, float] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(max(_LOOK_S, len(self._awake()) / _ASKED_PER_S))
            await self.look()

    async def look(self) -> None:
        """Ask each running guest once. A silent guest holds up the others only for a moment."""
        awake = self._awake()
        machine_ids = {running.machine.machine_id for _, running in awake}
        self._silent = {one: since_s for one, since_s in self._silent.items() if one in machine_ids}
        slots = asyncio.Semaphore(_AT_ONCE)

        async def ask(sandbox: Sandbox, running: RunningMachine) -> None:
            async with slots:
                await self._ask(sandbox, running)

        async with asyncio.TaskGroup() as group:
            for sandbox, running in awake:
                group.create_task(ask(sandbox, running))

    def _awake(self) -> list[tuple[Sandbox, RunningMachine]]:
        return [
            (sandbox, sandbox.running)
            for sandbox in self.inventory.sandboxes()
            if sandbox.running is not None and _is_to_answer(sandbox, sandbox.running)
        ]

    async def _ask(self, sandbox: Sandbox, running: RunningMachine) -> None:
        began_s = self.clock.awake_s()
        for _ in range(_TRIES):
            if not _is_to_answer(sandbox, running):
                return
            try:
                running.own_bytes += await self.agents.answers(running.link)
            except (AtollError, OSError) as error:
                if shortage_of(error) is not None:
                    return  # this shortage is the host's, and says nothing about the guest
            else:
                self._heard(sandbox, running)
                return
        if _is_to_answer(sandbox, running):  # an operation may have frozen it meanwhile
            await self._not_heard(sandbox, running, began_s)

    def _heard(self, sandbox: Sandbox, running: RunningMachine) -> None:
        self._silent.pop(running.machine.machine_id, None)
        if running.unresponsive_since is not None:
            running.unresponsive_since = None
            _log.info("the guest of sandbox %s answers again", sandbox.sandbox_id)
            self.tell(sandbox.sandbox_id, "its guest answers again")

    async def _not_heard(self, sandbox: Sandbox, running: RunningMachine, began_s: float) -> None:
        since_s = self._silent.setdefault(running.machine.machine_id, began_s)
        if running.unresponsive_since is None:
            running.unresponsive_since = self.clock.unix_s() - (self.clock.awake_s() - since_s)
            _log.warning("the guest of sandbox %s does not answer", sandbox.sandbox_id)
            self.tell(sandbox.sandbox_id, "its guest does not answer")
        given_up = self.clock.awake_s() - since_s >= GIVEN_UP_S
        if given_up and sandbox.row.lifecycle.recovers and sandbox.row.on_crash != "stop":
            running.reason = f"its guest did not answer for {GIVEN_UP_S:g} s"
            await running.machine.kill()


def _is_to_answer(sandbox: Sandbox, running: RunningMachine) -> bool:
    runs = sandbox.running is running and sandbox.row.state == "running" and sandbox.unplugged is None
    return runs and not (sandbox.lock.locked() or running.leaving or running.gone.is_set())
