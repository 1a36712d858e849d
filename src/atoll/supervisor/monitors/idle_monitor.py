"""Pauses and suspends sandboxes that are idle."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.idleness import NEVER, Activity, Reading, Sleep, Tiers, tiers_of
from atoll.supervisor.state.transitions import check_action, check_plugged
from atoll.supervisor.state.wake_times import wake_time
from atoll.types.internal import BUILD_ATTRIBUTE, check_number

if TYPE_CHECKING:
    from atoll.guest import AgentStats
    from atoll.supervisor.lifecycle.pause import Pauses
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.monitors.history import History
    from atoll.supervisor.state.clock import Clock
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

# A sandbox is read four times in its shortest idle time, but at least and at most so often.
_PARTS = 4
_SELDOM_S, _OFTEN_S = 5.0, 0.25
_LOOK_S = 1.0
# A question that goes unanswered for longer counts as none: some protocols send data without expecting an
# answer.
_ANSWER_MOST_S = 600.0
# Retry a sandbox that cannot be suspended, for example on a full disk, after this time.
_AGAIN_S = 10.0
AWAKE_MOST_S = 86_400.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class IdleMonitor:
    """Reads the usage of sandboxes that sleep when idle, all in one task.

    Args:
        idle_most_s: Returns how long a sandbox of a team may be idle at most.
        tell: Writes a line into a sandbox's log.
    """

    default: Tiers
    idle_most_s: Callable[[str | None], float | None]
    inventory: Inventory
    history: History
    pauses: Pauses
    suspends: Suspends
    wakes: Wakes
    agents: Agents
    tasks: Tasks
    clock: Clock
    tell: Callable[[str, str], None]
    _next_s: dict[str, float] = field(default_factory=dict, init=False)
    _sleeping: set[str] = field(default_factory=set, init=False)

    def start(self) -> None:
        """Begin to watch, until the supervisor stops. Every sandbox counts as active now."""
        now_s, unix_s = self.clock.awake_s(), self.clock.unix_s()
        for sandbox in self.inventory.sandboxes():
            left_s = (sandbox.row.awake_until or 0.0) - unix_s
            sandbox.idleness.keep_awake(now_s, now_s + max(0.0, min(AWAKE_MOST_S, left_s)))
            sandbox.idleness.note(now_s, "start")
        self.tasks.watch(self._watching())

    def used(self, sandbox: Sandbox) -> None:
        """Note that a client uses a sandbox."""
        self._note(sandbox, "use")

    def asked(self, ref: str) -> None:
        """Note that a client asked for something to be done with the sandbox of that id or name, if there is one."""
        try:
            self.used(self.inventory.sandbox(ref))
        except AtollError:
            return

    async def keep_awake(self, sandbox: Sandbox, seconds: float) -> None:
        """Wake a sandbox, and have it count as active for this long. 0 ends an earlier request.

        Raises:
            InvalidSpecError: ``seconds`` is no number, is negative, or is more than a day.
            AsleepError: The sandbox sleeps, and use does not wake it.
            UnpluggedError: The sandbox is unplugged.
        """
        check_number("seconds", seconds, least=0, most=AWAKE_MOST_S, hint="give 0 to 86,400 seconds")
        await self.wakes.use(sandbox)
        async with sandbox.lock:
            check_action("keep awake", sandbox.row.state, sandbox.sandbox_id)
            check_plugged("keep awake", sandbox)
            until = self.clock.unix_s() + seconds if seconds else None
            await self.inventory.change(sandbox, awake_until=until)
            now_s = self.clock.awake_s()
            sandbox.idleness.keep_awake(now_s, now_s + seconds)

    def _note(self, sandbox: Sandbox, activity: Activity) -> None:
        sandbox.idleness.note(self.clock.awake_s(), activity)

    async def _watching(self) -> None:
        while True:
            wait_s = _LOOK_S
            sandboxes = self.inventory.sandboxes()
            for gone in self._next_s.keys() - {sandbox.sandbox_id for sandbox in sandboxes}:
                del self._next_s[gone]
            for sandbox in sandboxes:
                shortest_s = self._look(sandbox)
                if shortest_s is None:
                    continue
                every_s = min(_SELDOM_S, max(_OFTEN_S, shortest_s / _PARTS))
                wait_s = min(wait_s, every_s)
                if self.clock.awake_s() >= self._next_s.get(sandbox.sandbox_id, 0.0):
                    self._next_s[sandbox.sandbox_id] = self.clock.awake_s() + every_s
                    await self._judge(sandbox, every_s)
            await asyncio.sleep(wait_s)

    def tiers(self, sandbox: Sandbox) -> Tiers:
        """After how many idle seconds a sandbox sleeps, by its lifecycle, its home and its team."""
        row = sandbox.row
        # A client runs the steps of a build, and may wait for anything.
        if BUILD_ATTRIBUTE in row.attributes:
            return NEVER
        # a held sandbox ends with its client, so it is never forgotten
        default = self.default._replace(suspend_s=None) if sandbox.holders else self.default
        return tiers_of(row.lifecycle, default, self.idle_most_s(row.team))

    def _look(self, sandbox: Sandbox) -> float | None:
        """Look at a sandbox's state. Returns its shortest idle time if it has to be watched now."""
        row, idleness = sandbox.row, sandbox.idleness
        if row.state not in ("running", "paused"):  # thousands may sleep
            idleness.enter(row.state, self.clock.awake_s())
            return None
        tiers = self.tiers(sandbox)
        if tiers.shortest_s is None and idleness.tiers.shortest_s is None:
            return None
        idleness.look(row.state, tiers, self.clock.awake_s(), self.clock.unix_s())
        return None if sandbox.unplugged is not None else tiers.shortest_s

    async def _judge(self, sandbox: Sandbox, every_s: float) -> None:
        running = sandbox.running
        if running is None or sandbox.sandbox_id in self._sleeping:
            return
        if sandbox.lock.locked() and not sandbox.idleness.is_worked_on:
            self._note(sandbox, "operation")
        elif sandbox.row.state == "running" and not await self._read(sandbox, running, every_s):
            return
        if self._due(sandbox, running) is not None:
            self._sleeping.add(sandbox.sandbox_id)
            # Do not await this: the watch on the others goes on meanwhile.
            self.tasks.spawn(self._sleep(sandbox))

    async def _read(self, sandbox: Sandbox, running: RunningMachine, within_s: float = 0.0) -> bool:
        """Read a machine's usage. A measurement in the history no older than ``within_s`` will do."""
        try:
            payload_bytes = _payload_bytes(running)
            cpu_s = self.history.cpu_s(sandbox, running.machine.machine_id, within_s)
            if cpu_s is None:
                cpu_s = (await running.machine.stats()).cpu_s
        except (AtollError, OSError) as error:
            if not running.leaving and not running.gone.is_set():
                _log.info("cannot read what sandbox %s uses: %s", sandbox.sandbox_id, error)
            return False
        reading = Reading(running.machine.machine_id, cpu_s, payload_bytes)
        sandbox.idleness.read(reading, self.clock.awake_s())
        return True

    def _due(self, sandbox: Sandbox, running: RunningMachine) -> Sleep | None:
        sleep = sandbox.idleness.due(sandbox.row.state, self.clock.awake_s())
        if sleep is None or sandbox.row.state != "running":
            return sleep
        # Ask only now: the answer takes a look at every connection of the host.
        try:
            # An answer from outside would wake it.
            asked_s = running.link.unanswered_s(by_guest=not sandbox.row.lifecycle.wake_on_data)
        except OSError as error:
            _log.info("cannot see the connections of sandbox %s: %s", sandbox.sandbox_id, error)
            return sleep
        if asked_s is None or asked_s >= _ANSWER_MOST_S:
            return sleep
        self._note(sandbox, "request")
        return None

    async def _sleep(self, sandbox: Sandbox) -> None:
        """Put a sandbox to sleep that was idle when it was last looked at, unless it is used again."""
        try:
            told = await self._ask(sandbox)
            if told and sandbox.idleness.said(self.clock.awake_s(), told.keep_awake_s, told.waiting):
                return
            async with sandbox.lock:
                await self._sleep_locked(sandbox, told.wake_at if told else 0.0)
        except (AtollError, OSError) as error:
            _log.warning("cannot put idle sandbox %s to sleep: %s", sandbox.sandbox_id, error)
            self._next_s[sandbox.sandbox_id] = self.clock.awake_s() + _AGAIN_S
        finally:
            self._sleeping.discard(sandbox.sandbox_id)

    async def _ask(self, sandbox: Sandbox) -> AgentStats | None:
        """Ask a running guest for reasons to stay awake, or to wake. No answer counts as none."""
        running = sandbox.running
        if running is None or sandbox.row.state != "running":
            return None
        before = running.link.payload_bytes()
        try:
            told = await running.alive(self.agents.stats(running.link), sandbox.sandbox_id)
        except AtollError as error:
            _log.info("sandbox %s does not say whether it may sleep: %s", sandbox.sandbox_id, error)
            return None
        finally:
            running.own_bytes += running.link.payload_bytes() - before
        sandbox.idleness.excuse((await running.machine.stats()).cpu_s)
        return told

    async def _sleep_locked(self, sandbox: Sandbox, wake_at: float) -> None:
        running = sandbox.running
        if running is None or sandbox.unplugged is not None or sandbox.row.state not in ("running", "paused"):
            return
        # Read this first. The guest has had a moment for all data up to here; data after this thaws it again.
        received = running.link.received_payload_bytes()
        payload_bytes = _payload_bytes(running)
        if sandbox.row.state == "running" and not await self._read(sandbox, running):
            return
        sleep = self._due(sandbox, running)
        if sleep is None:
            return
        self.tell(sandbox.sandbox_id, f"is idle: {_DONE[sleep]}")
        if sleep == "suspended":
            await self.suspends.suspend_locked(sandbox, cause="idle")
            if sandbox.row.lifecycle.wake_on_data and _payload_bytes(running) > payload_bytes:
                # The guest may have got data that it had no time to handle.
                self.tasks.spawn(self.wakes.use(sandbox))
        else:
            wakes_at = wake_time(sandbox.row.lifecycle, wake_at, self.clock.unix_s())
            await self.pauses.pause_locked(sandbox, "idle", received=received, wakes_at=wakes_at)
            # Note this here: data may thaw it before the next look, and then it has a while to handle that.
            sandbox.idleness.enter("paused", self.clock.awake_s())


def _payload_bytes(running: RunningMachine) -> int:
    """The bytes that a guest has sent and received, without the supervisor's own exchanges."""
    return running.link.payload_bytes() - running.own_bytes


_DONE: dict[Sleep, str] = {"paused": "it is paused", "suspended": "it is suspended"}
