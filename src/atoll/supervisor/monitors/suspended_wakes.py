"""Wakes suspended sandboxes for which data comes on a connection that they have open."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.errors import AtollError, DelegationExpiredError, DrainingError, HostMemoryError, QuotaError
from atoll.network import Pace
from atoll.supervisor.lifecycle.turns import Turns

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks

Wake = Callable[["Sandbox"], Coroutine[Any, Any, object]]

# How many wakes one sandbox may have in a burst, and the seconds per wake after that. A sandbox with a longer
# idle time before its suspend never waits for this.
WAKES_AT_ONCE = 10
WAKE_EVERY_S = 60.0
# How many wakes by data run at once; wakes that clients wait for have their turns between these.
_AT_ONCE = 4
# A failed wake costs a restore. A forbidden wake costs nothing, and may be allowed at any moment.
PAUSES_S = (5.0, 15.0, 60.0, 300.0)
_FORBIDDEN_S = 10.0
# The event loop's clock stops while the host sleeps, so it never waits for longer than this.
_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class _Sleeper:
    """A sandbox that data wakes, and its newest sleep."""

    def __init__(self, sandbox: Sandbox, clock: Callable[[], float]) -> None:
        self.sandbox = sandbox
        self.pace = Pace(1 / WAKE_EVERY_S, WAKES_AT_ONCE, clock)
        self.generation = 0
        self.waking: asyncio.Task[None] | None = None

    @property
    def is_same_sleep(self) -> bool:
        """Whether it still sleeps as it did when its watch began, with its connections."""
        sandbox = self.sandbox
        asleep = sandbox.row.state == "suspended" and sandbox.row.generation == self.generation
        return asleep and sandbox.link is not None and sandbox.unplugged is None

    @property
    def waits(self) -> bool:
        """Whether data may wake it, or is about to."""
        link = self.sandbox.link
        watched = link is not None and link.guest.is_watched
        return (watched or self.waking is not None) and self.is_same_sleep


@dataclass(kw_only=True, eq=False, repr=False)
class SuspendedWakes:
    """Wakes suspended sandboxes whose lifecycle has ``wake_on_data``.

    Args:
        boot_s: A clock that never jumps.
        tell: Writes a line into a sandbox's log.
    """

    inventory: Inventory
    tasks: Tasks
    boot_s: Callable[[], float]
    tell: Callable[[str, str], None]
    _wake: Wake | None = field(default=None, init=False)
    _sleepers: dict[str, _Sleeper] = field(default_factory=dict, init=False)
    _turns: Turns = field(default_factory=lambda: Turns(_AT_ONCE), init=False)

    def start(self, wake: Wake) -> None:
        """Begin to wake sandboxes that get data, also those asleep since before this process."""
        self._wake = wake
        for sandbox in self.inventory.sandboxes():
            if sandbox.row.state == "suspended":
                self.watch(sandbox)

    def close(self) -> None:
        """Wake nothing any more."""
        self._wake = None

    @property
    def waiting(self) -> bool:
        """Whether a sandbox waits for data, so that the supervisor must stay."""
        return self._wake is not None and any(sleeper.waits for sleeper in self._sleepers.values())

    def watch(self, sandbox: Sandbox) -> None:
        """Watch a suspended sandbox that has kept its link, if data is to wake it. Idempotent."""
        link, row = sandbox.link, sandbox.row
        if not row.lifecycle.wake_on_data or link is None or row.napping:
            return
        sleeper = self._sleepers.get(sandbox.sandbox_id)
        if sleeper is None:
            self._forget_gone()
            sleeper = self._sleepers[sandbox.sandbox_id] = _Sleeper(sandbox, self.boot_s)
        if sleeper.generation != row.generation and sleeper.waking is not None:
            sleeper.waking.cancel()  # the guest has run meanwhile and got its data
            sleeper.waking = None
        sleeper.generation = row.generation
        if sleeper.is_same_sleep and sleeper.waking is None and not link.guest.is_watched:
            link.guest.watch(partial(self._came, sleeper))

    def _came(self, sleeper: _Sleeper, source: str) -> None:
        waking = sleeper.waking = self.tasks.watch(self._wake_up(sleeper, source))

        def done(_: asyncio.Task[None]) -> None:
            if sleeper.waking is waking:
                sleeper.waking = None

        waking.add_done_callback(done)

    async def _wake_up(self, sleeper: _Sleeper, source: str) -> None:
        """Wake a sandbox as soon as it may be, and try again until it is awake."""
        sandbox, failures, forbidden = sleeper.sandbox, 0, False
        wait_s = sleeper.pace.wait_s()
        later = f"; it has woken often, so it wakes in {wait_s:.0f} s" if wait_s else ""
        self.tell(sandbox.sandbox_id, f"data came from {source}{later}")
        while True:
            await self._pass(wait_s)
            try:
                async with self._turns.turn():
                    wake = self._wake
                    if wake is None or not sleeper.is_same_sleep:
                        return
                    await self.tasks.run(wake(sandbox))
                sleeper.pace.take()
                return
            except DelegationExpiredError:  # it sleeps for good
                return
            except (DrainingError, QuotaError, HostMemoryError) as error:
                if not forbidden:
                    self.tell(sandbox.sandbox_id, f"wakes for its data later: {error}")
                wait_s, forbidden = _FORBIDDEN_S, True
            except (AtollError, OSError) as error:
                if not sleeper.is_same_sleep:  # it has crashed, is unplugged, or was killed
                    return
                wait_s = PAUSES_S[min(failures, len(PAUSES_S) - 1)]
                failures += 1
                _log.warning(
                    "sandbox %s cannot wake for data, and tries again: %s", sandbox.sandbox_id, error
                )

    async def _pass(self, wait_s: float) -> None:
        """Return after this many seconds, which go on while the host sleeps."""
        until_s = self.boot_s() + wait_s
        while self.boot_s() < until_s:  # noqa: ASYNC110 - the clock has no event
            await asyncio.sleep(_LOOK_S)

    def _forget_gone(self) -> None:
        """Forget sandboxes that are gone, before another comes."""
        known = {sandbox.sandbox_id for sandbox in self.inventory.sandboxes()}
        for gone in self._sleepers.keys() - known:
            del self._sleepers[gone]
