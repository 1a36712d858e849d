"""Gives sandboxes their running machines, and tells those that watch them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox


class Follower(Protocol):
    """Watches the running machines of sandboxes."""

    def follow(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a running machine that a sandbox has just got, until it ends."""


class Attachment:
    """Attaches running machines to sandboxes.

    Args:
        registry: The sandboxes.
        followers: Are told of each machine that a sandbox gets.
    """

    def __init__(self, registry: Registry, followers: Sequence[Follower]) -> None:
        self._registry = registry
        self._followers = followers

    async def take_up(
        self,
        sandbox: Sandbox,
        running: RunningMachine,
        *,
        durable: bool = False,
        freeing: bool = False,
        **changes: object,
    ) -> None:
        """Make a running machine the one that runs a sandbox, and store that with other ``changes`` of its row.

        ``freeing`` is as in ``Database.put``.
        """
        columns = {**running.columns(), "relayering": False, **changes}
        await self._registry.change(sandbox, durable=durable, freeing=freeing, state="running", **columns)
        self.attach(sandbox, running)

    def attach(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Do what ``take_up`` does, for a row that already says so."""
        sandbox.running, sandbox.link = running, None
        for follower in self._followers:
            follower.follow(sandbox, running)
