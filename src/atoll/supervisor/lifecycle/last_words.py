"""Tells of a suspend on the host and inside, and hears when the guest wants to wake."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError, DeadlineError, UnsupportedError
from atoll.supervisor.state.wake_times import wake_time

if TYPE_CHECKING:
    from atoll.guest import LastWords
    from atoll.supervisor.lifecycle.home_hooks import HomeHooks
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.types import SleepCause

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Farewells:
    """Tells the home's user of a suspend, and then the guest before it is frozen.

    Args:
        unix_s: The calendar.
        tell: Writes a line into a sandbox's log.
    """

    hooks: HomeHooks
    agents: Agents
    unix_s: Callable[[], float]
    tell: Callable[[str, str], None]

    async def say(self, sandbox: Sandbox, cause: SleepCause) -> float | None:
        """Tell that a sandbox is about to be suspended, and run the hooks. Returns when it is to wake.

        A frozen guest hears nothing: its answer from the time of the pause counts. An agent that does not
        answer in time stops no suspend. The caller holds the sandbox's lock.
        """
        hooks, running = self.hooks.before_suspend(sandbox.row, cause), sandbox.running
        with contextlib.suppress(AtollError):  # a kill ends the machine without waiting for the hooks
            await (hooks if running is None else running.alive(hooks, sandbox.sandbox_id))
        if running is None or sandbox.row.state != "running" or sandbox.unplugged is not None:
            return sandbox.row.wakes_at
        try:
            words = await running.alive(self._exchange(running), sandbox.sandbox_id)
        except UnsupportedError:
            return None  # a checkpoint keeps its agent
        except (AtollError, OSError) as error:
            if isinstance(error, DeadlineError) and running.unresponsive_since is None:
                running.unresponsive_since = self.unix_s()
            _log.warning("sandbox %s is suspended without its consent: %s", sandbox.sandbox_id, error)
            self.tell(sandbox.sandbox_id, f"is suspended, although its agent does not answer: {error}")
            return None
        return wake_time(sandbox.row.lifecycle, words.wake_at, self.unix_s())

    async def _exchange(self, running: RunningMachine) -> LastWords:
        words, moved_bytes = await self.agents.before_suspend(running.link)
        running.own_bytes += moved_bytes
        if words.hooks:
            # The hooks' own traffic is no data that the guest still has to handle.
            before = running.link.payload_bytes()
            try:
                words, _ = await self.agents.before_suspend(running.link, hooks=True)
            finally:
                running.own_bytes += running.link.payload_bytes() - before
        return words
