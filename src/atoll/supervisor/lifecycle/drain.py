"""Puts all sandboxes of a home to sleep, as before a reboot, and later wakes those that ran."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError, StateError
from atoll.types import DrainInfo, DrainReport, Progress, UndrainReport

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.suspend import Suspends
    from atoll.supervisor.lifecycle.wake import Wakes
    from atoll.supervisor.state.drain_gate import DrainGate
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

Report = Callable[[Progress], None]
# The drain waits for sandboxes in the making, which have passed the gate.
_AWAKE = ("running", "paused")


@dataclass(kw_only=True, eq=False, repr=False)
class Drains:
    """Drains the home, and ends that.

    Args:
        unix_s: Returns Unix seconds.
        at_once: How many are suspended or woken at the same time.
    """

    inventory: Inventory
    gate: DrainGate
    suspends: Suspends
    wakes: Wakes
    tasks: Tasks
    unix_s: Callable[[], float]
    at_once: int
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    def info(self) -> DrainInfo:
        """Whether the home is drained, since when, and what will run again."""
        record = self.gate.record
        if record is None or record.ending:
            return DrainInfo(drained=False)
        return DrainInfo(drained=True, since=record.since, sandboxes=list(record.sandboxes))

    async def drain(self, timeout_s: float | None, report: Report) -> DrainReport:
        """Refuse all that would make a sandbox run, and suspend every sandbox that runs or is paused.

        This waits for sandboxes in the making. A sandbox whose suspend fails runs on and does not stop the
        rest.

        Args:
            timeout_s: Seconds until this returns and reports the rest as failed; None waits for ever.

        Raises:
            OSError: The drain could not be stored; then nothing was done.
        """
        async with self._turn:
            await self.gate.close(self.unix_s())
            pass_ = _Pass(report)
            try:
                async with asyncio.timeout(timeout_s):
                    while await self._suspend_awake(pass_):
                        await self.gate.wait_until_empty()
            except TimeoutError:
                for sandbox in self._awake(pass_):
                    pass_.failed[sandbox.sandbox_id] = f"it was not asleep within {timeout_s:g} s"
            info = self.info()
            return DrainReport(
                since=info.since, suspended=pass_.done, failed=pass_.failed, sandboxes=info.sandboxes
            )

    async def end(self, report: Report) -> UndrainReport:
        """Let sandboxes start and wake again, and wake those that ran before the drain.

        A failed wake does not stop the others. Sandboxes that were killed, or already run, are left out.

        Raises:
            OSError: The end could not be stored; then nothing was done.
        """
        async with self._turn:
            ids = set(await self.gate.open())
            sleeping = [
                one
                for one in self.inventory.sandboxes()
                if one.sandbox_id in ids and one.row.state not in _AWAKE
            ]
            pass_ = _Pass(report)
            pass_.expect(sleeping)
            await self._each(sleeping, lambda one: self.wakes.resume(one, by_hand=False), pass_, "waking")
            await self.gate.forget()
            return UndrainReport(woken=pass_.done, failed=pass_.failed)

    def go_on(self) -> None:
        """Wake the rest of a drain that an earlier supervisor was ending."""
        if self.gate.record is not None and self.gate.record.ending:
            self.tasks.spawn(self.end(lambda _: None))

    def _awake(self, pass_: _Pass) -> list[Sandbox]:
        return [
            one
            for one in self.inventory.sandboxes()
            if (one.row.state in _AWAKE or one.row.napping) and one.sandbox_id not in pass_.failed
        ]

    async def _suspend_awake(self, pass_: _Pass) -> bool:
        """Suspend the sandboxes that are awake now. Returns False if there are none."""
        awake = self._awake(pass_)
        if not awake:
            await self.gate.wait_until_empty()
            awake = self._awake(pass_)
        # Note the running sandboxes first: only awake ones are known.
        await self.gate.remember(
            one.sandbox_id for one in awake if one.row.state != "paused" and one.unplugged is None
        )
        pass_.expect(awake)
        await self._each(awake, self._suspend, pass_, "suspending")
        return bool(awake)

    async def _suspend(self, sandbox: Sandbox) -> None:
        await self.suspends.suspend(sandbox)
        if sandbox.row.napping:  # its memory was meant for a moment, and may not outlive the host
            raise StateError(
                "it is still to run again after an operation that was cut short",
                hint="resume it, and drain again",
            )

    async def _each(
        self,
        sandboxes: list[Sandbox],
        do: Callable[[Sandbox], object],
        pass_: _Pass,
        step: str,
    ) -> None:
        slots = asyncio.Semaphore(self.at_once)

        async def one(sandbox: Sandbox) -> None:
            async with slots:
                pass_.tell(step)
                try:
                    await self.tasks.run(do(sandbox))  # type: ignore[arg-type]
                    pass_.done.append(sandbox.sandbox_id)
                except (AtollError, OSError) as error:
                    pass_.failed[sandbox.sandbox_id] = str(error)
                pass_.tell(step)

        async with asyncio.TaskGroup() as group:
            for sandbox in sandboxes:
                group.create_task(one(sandbox))


@dataclass(eq=False, repr=False)
class _Pass:
    """How far it has come."""

    report: Report
    _total: set[str] = field(default_factory=set, init=False)
    done: list[str] = field(default_factory=list, init=False)
    failed: dict[str, str] = field(default_factory=dict, init=False)

    def expect(self, sandboxes: list[Sandbox]) -> None:
        """Count these too."""
        self._total |= {one.sandbox_id for one in sandboxes}

    def tell(self, step: str) -> None:
        """Report how many are done."""
        done = len(self.done) + len(self.failed)
        self.report(Progress(step=step, done=done, total=len(self._total), unit="sandboxes"))
