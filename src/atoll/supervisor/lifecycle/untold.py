"""Notes what a channel could not tell of."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.remedies import harmless
from atoll.supervisor.lifecycle.signed_posts import PostError

if TYPE_CHECKING:
    from atoll.supervisor.state.acts import Acts
    from atoll.supervisor.state.asks import PendingAsk
    from atoll.types import Ask

# Seconds between the tries.
WAITS_S = (0.5, 2.0)
_QUIET_S = 60.0
_WHY_CHARACTERS = 200
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Untold:
    """Notes the failures of one channel: each in the audit log, and one a minute in the supervisor's.

    Args:
        channel: What it is, for a reader.
        boot_s: A clock that never jumps.
    """

    channel: str
    acts: Acts
    boot_s: Callable[[], float]
    _quiet_until_s: float = field(default=0.0, init=False)

    def note(self, ask: Ask, why: str) -> None:
        """Note that the channel was not told of an ask."""
        shown = harmless(why, kept="")[:_WHY_CHARACTERS]
        self.acts.ask_untold(ask, self.channel, shown)
        self.log(f"was not told of ask {ask.ask_id}: {shown}")

    def log(self, text: str) -> None:
        """Log a failure of the channel, unless one was logged just before."""
        now = self.boot_s()
        if now >= self._quiet_until_s:
            self._quiet_until_s = now + _QUIET_S
            _log.warning("%s %s", self.channel, harmless(text, kept=""))


async def tried(attempt: Callable[[], Awaitable[None]], pending: PendingAsk | None = None) -> str | None:
    """Make an attempt, and two more if it fails.

    Args:
        pending: The ask that it is about: when it has ended, there are no more tries.

    Returns:
        Why it failed, or None.
    """
    why = None
    for wait_s in (*WAITS_S, None):
        if pending is not None and pending.ended.is_set():
            return why
        try:
            await attempt()
        except PostError as error:
            why = str(error)
            if wait_s is None or not error.may_pass:
                return why
        else:
            return None
        if pending is None:
            await asyncio.sleep(wait_s)
        else:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(pending.ended.wait(), wait_s)
    return why
