"""Pushes a line about each ask to phones and chats, by the package ``apprise``."""

from __future__ import annotations

import asyncio
import datetime
import importlib
import importlib.util
import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from atoll.network import Pace
from atoll.remedies import harmless
from atoll.supervisor.lifecycle.off_loop import off_loop
from atoll.supervisor.lifecycle.signed_posts import PostError
from atoll.supervisor.lifecycle.untold import Untold, tried

if TYPE_CHECKING:
    from atoll.supervisor.state.asks import PendingAsk
    from atoll.types import Ask

MISSING = "ATOLL_ASK_NOTIFY is set, but the Python package apprise is not installed"
MISSING_HINT = "pip install 'atoll[notify]', for the Python that runs atoll"
_GUEST_CHARACTERS = 400
# Of one sandbox: so many pushes at once, and then one in 15 s. It may be hostile, and a person reads them.
_AT_ONCE, _PER_S = 8, 1 / 15
_SANDBOXES_MOST = 1000
_WAITING_MOST = 64
# apprise spaces out what it sends to one service by some seconds.
_BOUND_S = 60.0
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class _Target:
    """One address: an ``apprise.Apprise`` of its own, so that no other waits for a slow one."""

    apprise: Any
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


@dataclass(eq=False, repr=False)
class AskPushes:
    """Pushes one line about each ask. It shows no header and no body of a request.

    Args:
        urls: Addresses as apprise takes them. They hold secrets, so nothing logs them.
        boot_s: A clock that never jumps.
    """

    urls: tuple[str, ...]
    untold: Untold
    boot_s: Callable[[], float]
    _targets: list[_Target] | None = field(default=None, init=False)
    _ready: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _paces: dict[str, Pace] = field(default_factory=dict, init=False)

    async def load(self) -> None:
        """Load apprise, which takes too long to do so for the first ask."""
        made: list[Any] = []
        try:
            if is_installed():
                made = await off_loop(self._made)
        except Exception as error:  # any of its many modules may fail here
            _log.error("apprise cannot be loaded: %s", type(error).__name__)
        self._targets = [_Target(one) for one in made]
        self._ready.set()

    def is_open(self) -> bool:
        """Whether it can tell."""
        return is_installed() if self._targets is None else bool(self._targets)

    async def tell(self, pending: PendingAsk) -> None:
        """Push a line about an ask to each address."""
        await self._ready.wait()
        if not self._targets:
            return
        if pending.ended.is_set():
            return
        if self._is_too_often(pending.value.sandbox_id):
            self.untold.note(pending.value, "this sandbox asks too often for a push each time")
            return
        await asyncio.gather(*(self._push(target, pending) for target in self._targets))

    async def _push(self, target: _Target, pending: PendingAsk) -> None:
        if target.waiting >= _WAITING_MOST:
            self.untold.note(pending.value, f"{_WAITING_MOST} others wait for it already")
            return

        async def attempt() -> None:
            title, body = push_text(pending.value)
            await _notify(target.apprise, title, body)

        target.waiting += 1
        try:
            async with target.turn:
                why = await tried(attempt, pending)
        finally:
            target.waiting -= 1
        if why is not None:
            self.untold.note(pending.value, why)

    def _made(self) -> list[Any]:
        apprise: Any = importlib.import_module("apprise")
        # It would write addresses, which hold passwords, and a guest's text into the supervisor's log.
        logging.getLogger("apprise").setLevel(logging.CRITICAL + 1)
        made = []
        for number, url in enumerate(self.urls, 1):
            one = apprise.Apprise()
            if one.add(url):
                made.append(one)
            else:
                _log.error("apprise cannot use address %d of ATOLL_ASK_NOTIFY", number)
        return made

    def _is_too_often(self, sandbox_id: str) -> bool:
        pace = self._paces.get(sandbox_id)
        if pace is None:
            if len(self._paces) >= _SANDBOXES_MOST:
                self._paces.clear()
            pace = self._paces[sandbox_id] = Pace(_PER_S, _AT_ONCE, self.boot_s)
        if pace.wait_s():
            return True
        pace.take()
        return False


async def _notify(apprise: Any, title: str, body: str) -> None:
    try:
        async with asyncio.timeout(_BOUND_S):
            took = await off_loop(lambda: apprise.notify(title=title, body=body, body_format="text"))
    except TimeoutError:
        raise PostError(f"no answer in {_BOUND_S:g} s", may_pass=False) from None
    except Exception as error:  # each of its services has errors of its own
        raise PostError(type(error).__name__, may_pass=True) from None
    if not took:
        raise PostError("the service did not take it", may_pass=True)


def push_text(ask: Ask) -> tuple[str, str]:
    """Return the title and the body of a push."""
    what = harmless(ask.title, kept="")
    if len(what) > _GUEST_CHARACTERS:
        what = f"{what[: _GUEST_CHARACTERS - 1]}…"
    until = datetime.datetime.fromtimestamp(ask.deadline, datetime.UTC)
    name = harmless(ask.sandbox_name or ask.sandbox_id, kept="")
    lines = (what, f"until {until:%Y-%m-%d %H:%M:%S} UTC", f"atoll approve {ask.ask_id}")
    return f"atoll: {name} asks", "\n".join(lines)


def is_installed() -> bool:
    """Whether there is the package apprise."""
    return "apprise" in sys.modules or importlib.util.find_spec("apprise") is not None
