"""Runs the services that have a schedule, and wakes their sandboxes for it."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.types import ServiceRun, ServiceSpec
from atoll.types.internal import schedule_of

if TYPE_CHECKING:
    from atoll.guest import ServiceStatus
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.monitors.lease_expiry import LeaseExpiry
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

# The event loop's clock stops while the host sleeps, so it never waits for longer than this.
_LOOK_S = 0.5
_AT_ONCE = 4
_POLL_FIRST_S = 0.1
_POLL_MOST_S = 2.0
# The agent ends a run at its timeout; this much longer it may take to tell.
_GRACE_S = 30.0
# A run extends a lease that would end under it by this much, again and again.
_LEASE_S = 60.0
# A run that cannot be stored, as on a full disk, waits for this long.
_AGAIN_S = 10.0
_log = logging.getLogger(__name__)


class Schedules:
    """Watches all schedules of a home in one task.

    Args:
        inventory: The sandboxes, whose rows have the services and their last runs.
        wakes: Wakes the sandboxes.
        suspends: Puts a sandbox back to sleep that only a run has woken.
        leases: Extends the lease of a sandbox during a run.
        agents: Calls the guests' agents.
        clients: How many clients are connected.
        tasks: Owner of the watching and of the runs.
        unix_s: The calendar.
        tell: Writes a line into a sandbox's log.
    """

    def __init__(
        self,
        *,
        inventory: Inventory,
        wakes: Wakes,
        suspends: Suspends,
        leases: LeaseExpiry,
        agents: Agents,
        clients: Callable[[], int],
        tasks: Tasks,
        unix_s: Callable[[], float],
        tell: Callable[[str, str], None],
    ) -> None:
        self._inventory = inventory
        self._wakes = wakes
        self._suspends = suspends
        self._leases = leases
        self._agents = agents
        self._clients = clients
        self._tasks = tasks
        self._unix_s = unix_s
        self._tell = tell
        self._going: set[tuple[str, str]] = set()
        self._closed = False
        self._turn = asyncio.Semaphore(_AT_ONCE)

    @property
    def waiting(self) -> bool:
        """Whether a sandbox waits for its time, so that the supervisor must stay."""
        now_s = self._unix_s()
        return any(_runnable(sandbox, now_s) for sandbox in self._inventory.sandboxes())

    def close(self) -> None:
        """Wake no further sandbox. A run that is due now starts with the next supervisor."""
        self._closed = True

    async def run(self) -> None:
        """Run due services until ``close``. A service that missed runs without a supervisor runs once."""
        while not self._closed:
            for sandbox in self._inventory.sandboxes():
                for spec in _runnable(sandbox, self._unix_s()):
                    self._look(sandbox, spec)
            await asyncio.sleep(_LOOK_S)

    def _look(self, sandbox: Sandbox, spec: ServiceSpec) -> None:
        key, since = (sandbox.sandbox_id, spec.name), sandbox.row.scheduled_from(spec)
        if key in self._going or _next_at(spec.schedule or "", since) > self._unix_s():
            return
        self._going.add(key)
        self._tasks.watch(self._run(sandbox, spec)).add_done_callback(lambda _: self._going.discard(key))

    async def _run(self, sandbox: Sandbox, spec: ServiceSpec) -> None:
        if self._closed:
            return
        run = ServiceRun(at=self._unix_s())
        try:
            # Store this first, so that a failing run is not tried again at once.
            await self._note(sandbox, spec, run)
        except (AtollError, OSError) as error:
            _log.warning("cannot store a run in sandbox %s: %s", sandbox.sandbox_id, error)
            await asyncio.sleep(_AGAIN_S)
            return
        slept = sandbox.row.state == "suspended"
        try:
            ended, code = await self._ran(sandbox, spec)
            reason = None if ended else "the sandbox slept before its end, or it took too long"
        except (AtollError, OSError) as error:
            code, reason = None, str(error)[:500]
        self._tell(sandbox.sandbox_id, f"service {spec.name} ran: {reason or f'it ended with {code}'}")
        await self._note(
            sandbox, spec, ServiceRun(at=run.at, ended_at=self._unix_s(), exit_code=code, reason=reason)
        )
        if slept:
            await self._let_sleep(sandbox)

    async def _ran(self, sandbox: Sandbox, spec: ServiceSpec) -> tuple[bool, int | None]:
        async with self._turn:  # for the wake only: a run may take as long as its timeout
            if self._closed:
                return False, None
            running = await self._tasks.run(self._wakes.use(sandbox))
        before = await self._status(sandbox, running, spec)
        await running.alive(self._agents.start_service(running.link, spec.name), sandbox.sandbox_id)
        until_s, pause_s = self._unix_s() + spec.timeout_s + _GRACE_S, _POLL_FIRST_S
        while sandbox.running is running and sandbox.row.state == "running" and self._unix_s() < until_s:
            status = await self._status(sandbox, running, spec)
            if status is None:
                break
            if status.state != "running" and (before is None or status.runs > before.runs):
                return True, status.exit_code
            await self._extend(sandbox)
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _POLL_MOST_S)
        return False, None

    async def _status(
        self, sandbox: Sandbox, running: RunningMachine, spec: ServiceSpec
    ) -> ServiceStatus | None:
        told = await running.alive(self._agents.services(running.link), sandbox.sandbox_id)
        return told.get(spec.name)

    async def _extend(self, sandbox: Sandbox) -> None:
        """Have a lease not end under a run: the run's own bound is its timeout."""
        ends_at = sandbox.row.ends_at
        if ends_at is not None and ends_at - self._unix_s() < _LEASE_S / 2:
            with suppress(AtollError):  # a quota may not allow it
                await self._leases.set_lease(sandbox, _LEASE_S, extend_only=True)

    async def _note(self, sandbox: Sandbox, spec: ServiceSpec, run: ServiceRun) -> None:
        async with sandbox.lock:
            names = {each.name for each in sandbox.row.services}
            if sandbox.row.state == "killed" or spec.name not in names:
                return
            kept = {name: each for name, each in sandbox.row.runs.items() if name in names}
            await self._inventory.change(sandbox, runs={**kept, spec.name: run})

    async def _let_sleep(self, sandbox: Sandbox) -> None:
        """Suspend a sandbox again that only a run has woken: without a lease, nothing else would."""
        if sandbox.row.state == "running" and sandbox.row.ends_at is None and not self._clients():
            with suppress(AtollError):
                await self._tasks.run(self._suspends.suspend(sandbox))


@functools.lru_cache(4096)
def _next_at(schedule: str, since: float) -> float:
    return schedule_of(schedule).after(since)


def _runnable(sandbox: Sandbox, now_s: float) -> list[ServiceSpec]:
    """The services with a schedule of a sandbox that may be woken for them."""
    row = sandbox.row
    asleep = row.state in ("paused", "suspended") and not row.lifecycle.auto_resume
    refuses = row.state == "crashed" and row.on_crash == "stop"
    if asleep or refuses or sandbox.unplugged is not None or row.state == "creating":
        return []
    if row.has_ended(now_s):
        return []
    return [spec for spec in row.services if spec.schedule is not None]
