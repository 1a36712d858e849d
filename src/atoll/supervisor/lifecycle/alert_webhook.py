"""Tells a webhook of alerts."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.remedies import harmless
from atoll.supervisor.lifecycle.untold import tried

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.signed_posts import SignedPosts
    from atoll.supervisor.lifecycle.untold import Untold
    from atoll.supervisor.state.acts import Acts
    from atoll.types import Alert

_AT_ONCE = 4
_WAITING_MOST = 256
_WHY_CHARACTERS = 200


@dataclass(eq=False, repr=False)
class AlertWebhook:
    """Posts the event ``alert``, and up to two times more if that fails.

    Args:
        untold: Logs failures, one a minute at most.
    """

    posts: SignedPosts
    acts: Acts
    untold: Untold
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _waiting: int = field(default=0, init=False)

    async def tell(self, alert: Alert) -> None:
        """Post an alert."""
        if self._waiting >= _WAITING_MOST:
            self._note(alert, f"{_WAITING_MOST} others wait for it already")
            return
        body = msgspec.json.encode(alert)

        async def attempt() -> None:
            await self.posts.post("alert", body)

        self._waiting += 1
        try:
            async with self._turns:
                why = await tried(attempt)
        finally:
            self._waiting -= 1
        if why is not None:
            self._note(alert, why)

    def _note(self, alert: Alert, why: str) -> None:
        shown = harmless(why, kept="")[:_WHY_CHARACTERS]
        self.acts.alert_untold(alert, shown)
        self.untold.log(f"was not told of alert {alert.alert_id}: {shown}")
