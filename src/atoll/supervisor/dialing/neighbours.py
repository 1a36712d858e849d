"""Connects sandboxes to others of the same team, as their policies allow."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field

from atoll.errors import AtollError, SandboxNotFoundError
from atoll.protocol import AGENT_PORT
from atoll.supervisor.dialing.socket import Dialling
from atoll.supervisor.lifecycle.turns import Turns
from atoll.supervisor.lifecycle.wake import Wakes
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks

# How many wakes guests may cause at once; clients have the other turns.
_AT_ONCE = 2
# How long to refuse a sandbox that could not be woken, and a name that no sandbox has.
_FAILED_S = 5.0
_ABSENT_S = 1.0
_REMEMBERED_MOST = 4096


@dataclass(eq=False, repr=False)
class Neighbours:
    """Connects sandboxes to each other, and wakes them for that. Works from ``start`` to ``close``.

    Args:
        boot_s: The clock.
    """

    inventory: Inventory
    dialling: Dialling
    wakes: Wakes
    tasks: Tasks
    boot_s: Callable[[], float]
    _is_open: bool = field(default=False, init=False)
    _turns: Turns = field(default_factory=lambda: Turns(_AT_ONCE), init=False)
    _waking: dict[str, asyncio.Task[object]] = field(default_factory=dict, init=False)
    # Until when, by the clock.
    _failed: dict[str, tuple[float, str]] = field(default_factory=dict, init=False)
    _absent: dict[tuple[str | None, str], float] = field(default_factory=dict, init=False)

    def start(self) -> None:
        """Begin, once the leftovers of an earlier supervisor are settled."""
        self._is_open = True

    def close(self) -> None:
        """Reach no further sandbox, and wake none."""
        self._is_open = False

    async def reach(self, team: str | None, ref: str, port: int) -> socket.socket:
        """Connect to a port of another sandbox, and wake it for that. The caller owns the socket.

        Args:
            team: The team of the sandbox that asks. It reaches only sandboxes of this team.
            ref: The name or id of the other sandbox.
            port: The port. The agent's own runs commands, so no sandbox reaches it.

        Raises:
            PermissionError: The team has no such sandbox, or the port is the agent's.
            OSError: The port has no listener, or the other sandbox cannot be woken or does not answer.
        """
        if not self._is_open:
            raise ConnectionRefusedError("the supervisor starts or ends")
        if port == AGENT_PORT:
            raise PermissionError(f"port {port} is the guest agent's, which no other sandbox reaches")
        sandbox = self._find(team, ref)
        try:
            await self._awake(sandbox)
            return await self.dialling.dial_for_guest(sandbox, port)
        except AtollError as error:
            raise ConnectionRefusedError(str(error)) from error

    def _find(self, team: str | None, ref: str) -> Sandbox:
        found = None
        if self._absent.get((team, ref), 0.0) <= self.boot_s():
            with contextlib.suppress(SandboxNotFoundError):
                found = self.inventory.sandbox(ref)
        if found is None or found.row.team != team:
            if len(self._absent) >= _REMEMBERED_MOST:
                self._absent.clear()
            self._absent.setdefault((team, ref), self.boot_s() + _ABSENT_S)
            # Use the same words for another team's sandbox: nobody learns the names of others.
            raise PermissionError(f"the team has no sandbox {ref}")
        self._absent.pop((team, ref), None)
        return found

    async def _awake(self, sandbox: Sandbox) -> None:
        """Wait until the sandbox runs. All waiters share one wake: if it fails, no waiter tries another."""
        if sandbox.row.state == "running":
            return
        until_s, why = self._failed.get(sandbox.sandbox_id, (0.0, ""))
        if until_s > self.boot_s():
            raise ConnectionRefusedError(why)
        task = self._waking.get(sandbox.sandbox_id)
        if task is None:
            task = self._waking[sandbox.sandbox_id] = self.tasks.spawn(self._wake(sandbox))
            task.add_done_callback(lambda _: self._waking.pop(sandbox.sandbox_id))
        await asyncio.shield(task)

    async def _wake(self, sandbox: Sandbox) -> None:
        before = sandbox.row.recovered
        async with self._turns.turn():
            try:
                await self.wakes.use(sandbox)
            except AtollError as error:
                if len(self._failed) >= _REMEMBERED_MOST:
                    self._failed.clear()
                self._failed[sandbox.sandbox_id] = (self.boot_s() + _FAILED_S, str(error))
                raise
        self._failed.pop(sandbox.sandbox_id, None)
        if sandbox.row.recovered != before:
            sandbox.untold = sandbox.row.recovered  # a client is to hear of it
