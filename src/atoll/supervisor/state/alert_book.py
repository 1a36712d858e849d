"""Keeps the newest alerts of each team, and tells whoever waits for them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from atoll.host import append_log, forget_log_head, read_log
from atoll.types import Alert, AlertPage
from atoll.types.internal import from_json

# Of each team. All are in the audit log.
KEPT_MOST = 500
_MOST_BYTES, _KEEP_BYTES = 4 << 20, 2 << 20
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class AlertBook:
    """Keeps alerts in memory and in a file, so that the next supervisor shows them too.

    Attributes:
        version: Changes with each alert.
        closed: Nobody waits for an alert any more.
    """

    path: Path
    unix_s: Callable[[], float]
    version: int = 0
    closed: bool = False
    _by_team: dict[str | None, deque[Alert]] = field(default_factory=dict, init=False)
    _last_id: int = field(default=0, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def load(self) -> None:
        """Read the newest ones of the file."""
        try:
            size = self.path.stat().st_size
            data, _ = read_log(self.path, size - _KEEP_BYTES, _KEEP_BYTES)
        except FileNotFoundError:
            return
        except OSError as error:
            _log.error("cannot read the alerts: %s", error)
            return
        for line in data.splitlines():
            # The first one may be cut by where reading began, the last one by a power cut.
            with contextlib.suppress(msgspec.DecodeError):
                self._keep(from_json(line, Alert))

    def next_id(self) -> int:
        """Return the id of the next alert: its time in microseconds, so that it says nothing of other teams."""
        self._last_id = max(self._last_id + 1, int(self.unix_s() * 1e6))
        return self._last_id

    def add(self, alert: Alert) -> None:
        """Keep an alert, and tell whoever waits."""
        self._keep(alert)
        try:
            append_log(self.path, msgspec.json.encode(alert).decode())
            forget_log_head(self.path, most_bytes=_MOST_BYTES, keep_bytes=_KEEP_BYTES)
        except OSError as error:
            _log.warning("cannot keep an alert: %s", error)
        self.version += 1
        self._wake()

    def page(
        self, team: str | None, sandbox_id: str | None, *, after: int = 0, newest: int = KEPT_MOST
    ) -> AlertPage:
        """Return the newest alerts of a team's sandboxes, or of one; None is all.

        Args:
            after: Only those with a larger id.
            newest: At most so many.
        """
        wanted = [team] if team is not None else list(self._by_team)
        new = [alert for one in wanted for alert in self._by_team.get(one, ()) if alert.alert_id > after]
        new.sort(key=lambda alert: alert.alert_id)
        found = [alert for alert in new if sandbox_id in (None, alert.sandbox_id)]
        # Not the last id of all: a team must not learn when others have alerts.
        last = new[-1].alert_id if new else after
        return AlertPage(alerts=found[max(0, len(found) - newest) :], next=last)

    async def changed(self, since: int) -> None:
        """Wait until the version is another one, or the supervisor ends."""
        while self.version == since and not self.closed:
            await self._changed.wait()

    def close(self) -> None:
        """Have nobody wait for an alert any more."""
        self.closed = True
        self._changed.set()

    def _keep(self, alert: Alert) -> None:
        self._by_team.setdefault(alert.team, deque(maxlen=KEPT_MOST)).append(alert)
        self._last_id = max(self._last_id, alert.alert_id)

    def _wake(self) -> None:
        self._changed.set()
        if not self.closed:
            self._changed = asyncio.Event()
