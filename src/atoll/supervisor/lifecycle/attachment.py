"""Gives sandboxes their running machines, and tells the monitors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox


class Follower(Protocol):
    """Watches the running machines of sandboxes."""

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a running machine that a sandbox has just got, until it ends."""


@dataclass(eq=False, repr=False)
class Attachment:
    """Attaches running machines to sandboxes.

    Args:
        followers: Called with each machine that a sandbox gets.
    """

    inventory: Inventory
    followers: Sequence[Follower]

    async def take_up(
        self,
        sandbox: Sandbox,
        running: RunningMachine,
        *,
        durable: bool = False,
        freeing: bool = False,
        **changes: object,
    ) -> None:
        """Give a sandbox its running machine, and store that with other ``changes`` of its row.

        ``freeing`` is as in ``Database.put``.
        """
        columns = {**running.columns(), "napping": False, **changes}
        await self.inventory.change(sandbox, durable=durable, freeing=freeing, state="running", **columns)
        self.attach(sandbox, running)

    def attach(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Do the work of ``take_up`` for a row that already says so."""
        sandbox.running, sandbox.link = running, None
        for follower in self.followers:
            follower.follow(sandbox, running)
