"""Pauses sandboxes: freezes them in memory, and thaws them."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.state.transitions import check_action

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.crashes import Crashes
    from atoll.supervisor.lifecycle.guest_memory import GuestMemory
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.types import SleepCause

# A caller that pauses a guest wants it to stop now. The host stops a guest that keeps its kernel busy.
_PAUSED_S = 0.5
_log = logging.getLogger(__name__)


class PausedWatcher(Protocol):
    """Watches sandboxes that were paused for idleness, and wakes a sandbox that gets data."""

    def watch(self, sandbox: Sandbox, running: RunningMachine, received: int | None = None) -> None:
        """Watch a sandbox as long as it is paused on this running machine.

        ``received`` is the amount of data to count from. None takes the amount at the first look.
        """


@dataclass(eq=False, repr=False)
class Pauses:
    """Pauses and thaws sandboxes."""

    inventory: Inventory
    crashes: Crashes
    guest_memory: GuestMemory
    watcher: PausedWatcher

    async def pause(self, sandbox: Sandbox) -> None:
        """Freeze the sandbox in memory. A paused sandbox stays paused.

        Raises:
            StateError: The sandbox is suspended or crashed.
        """
        async with sandbox.lock:
            check_action("pause", sandbox.row.state, sandbox.sandbox_id)
            if sandbox.row.state != "paused":
                await self.pause_locked(sandbox)
            elif sandbox.row.sleep_cause == "idle":
                sandbox.require_running().hang_up()
                await self.inventory.change(sandbox, sleep_cause="request", wakes_at=None)

    async def pause_locked(
        self,
        sandbox: Sandbox,
        cause: SleepCause = "request",
        *,
        received: int | None = None,
        wakes_at: float | None = None,
    ) -> None:
        """Freeze a running sandbox, and store why. The caller holds its lock.

        An idle sandbox keeps the connections of its clients: data on them thaws it. Any other stays frozen
        until a use. ``received`` is the amount of data that it had received when it was found idle.
        ``wakes_at`` is the time to wake by itself.
        """
        running = sandbox.require_running()
        try:
            await running.alive(running.freeze(within_s=_PAUSED_S), sandbox.sandbox_id)
            if cause != "idle":
                running.hang_up()
            await self.inventory.change(sandbox, state="paused", sleep_cause=cause, wakes_at=wakes_at)
        except BaseException:
            await to_the_end(thaw_or_end(running))
            raise
        self.watcher.watch(sandbox, running, received)

    def watch(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Watch a sandbox that stays paused after a step that failed."""
        self.watcher.watch(sandbox, running)

    async def thaw(self, sandbox: Sandbox, columns: Columns) -> None:
        """Let a paused sandbox run, and change ``columns`` of its row with it. The caller holds its lock.

        Raises:
            SandboxCrashedError: It could not be thawed.
        """
        running = sandbox.require_running()
        row = sandbox.row
        # The row first: a supervisor that adopts a running machine thaws it if it may be frozen.
        await self.inventory.change(sandbox, state="running", **columns)
        try:
            runs = await running.alive(thaw_or_end(running), sandbox.sandbox_id)
        except BaseException:
            await to_the_end(
                self.inventory.change(
                    sandbox, state="paused", sleep_cause=row.sleep_cause, wakes_at=row.wakes_at
                )
            )
            raise
        if not runs:
            await self.crashes.crashed_locked(sandbox, running, "it could not be thawed")
            raise running.lost(sandbox.sandbox_id)
        await self.guest_memory.tell_if_changed(sandbox)

    async def freeze_again(self, sandbox: Sandbox, before: SandboxRow) -> None:
        """Pause a sandbox again that was thawed for a step that failed. On a failure it keeps running.

        ``before`` is its row from before that. The caller holds its lock.
        """
        running = sandbox.running
        if running is None or sandbox.row.state != "running":
            return  # it has crashed
        try:
            await running.freeze()
        except (AtollError, OSError) as error:
            _log.warning(
                "sandbox %s keeps running, because it cannot be frozen again: %s", sandbox.sandbox_id, error
            )
            await thaw_or_end(running)
            return
        kept = ("state", "stopped_at", "sleep_cause", "wakes_at")
        paused: Columns = {name: getattr(before, name) for name in kept}
        try:
            await self.inventory.change(sandbox, **paused)
        except (AtollError, OSError) as error:
            # The step may have failed because the disk is full. A restarted supervisor would let it run.
            _log.warning("sandbox %s is paused, but that cannot be stored: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**paused)
        self.watcher.watch(sandbox, running)
