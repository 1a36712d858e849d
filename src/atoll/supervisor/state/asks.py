"""The asks that wait for an answer, and how the last ones ended."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

import msgspec

from atoll.errors import AskNotFoundError
from atoll.types import Answer, Ask, AskOutcome, PastAnswer

_ENDED_MOST = 1000
_PAST_MOST = 1000
_PAST_SHOWN = 5


@dataclass(eq=False)
class PendingAsk:
    """An ask that waits, and what an answer to it said.

    Args:
        for_s: The shortest time of all approvals so far.
        always: All approvals so far are for ever.
    """

    value: Ask
    ended: asyncio.Event = field(default_factory=asyncio.Event)
    answered_by: str = ""
    reason: str = ""
    for_s: float = math.inf
    always: bool = True

    def approved(self, answer: Answer) -> Answer:
        """Return what this approval and all before it agree on."""
        self.always = self.always and answer.always
        self.for_s = min(self.for_s, math.inf if answer.always else answer.for_s)
        for_s = answer.for_s if self.always else self.for_s
        return msgspec.structs.replace(answer, always=self.always, for_s=for_s)


@dataclass(eq=False, repr=False)
class AskTable:
    """Keeps asks in memory: those of requests live in the edge, which tells of them again.

    Attributes:
        added: Called with each ask that begins to wait.
        version: Changes with each change of the pending asks.
        closed: Nobody waits for a change any more.
    """

    added: Callable[[PendingAsk], None] | None = None
    version: int = 0
    _pending: dict[str, PendingAsk] = field(default_factory=dict, init=False)
    _ended: dict[str, Ask] = field(default_factory=dict, init=False)
    _past: deque[tuple[Ask, PastAnswer]] = field(default_factory=lambda: deque(maxlen=_PAST_MOST), init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    closed: bool = field(default=False, init=False)

    def add(self, value: Ask) -> PendingAsk:
        """Have an ask wait. The answers to earlier ones about the same are added to it."""
        past = [told for ask, told in self._past if _same(ask, value)]
        made = PendingAsk(msgspec.structs.replace(value, past=tuple(past[-1 : -1 - _PAST_SHOWN : -1])))
        self._pending[value.ask_id] = made
        self._note()
        if self.added is not None:
            self.added(made)
        return made

    def change(self, pending: PendingAsk, **fields: object) -> None:
        """Change fields of an ask that waits."""
        pending.value = msgspec.structs.replace(pending.value, **fields)
        self._note()

    def end(self, ask_id: str, outcome: AskOutcome, *, passed: int, at: float) -> PendingAsk | None:
        """Have an ask wait no more; None if it did not wait."""
        pending = self._pending.pop(ask_id, None)
        if pending is None:
            return None
        value = msgspec.structs.replace(
            pending.value, outcome=outcome, passed=passed, reason=pending.reason, body=None
        )
        pending.value = self._ended[ask_id] = value
        while len(self._ended) > _ENDED_MOST:
            del self._ended[next(iter(self._ended))]
        told = PastAnswer(at=at, outcome=outcome, by=pending.answered_by, reason=pending.reason)
        self._past.append((value, told))
        pending.ended.set()
        self._note()
        return pending

    def of(self, ask_id: str) -> PendingAsk:
        """Return an ask that waits.

        Raises:
            AskNotFoundError: It has ended, or there was none.
        """
        found = self._pending.get(ask_id)
        if found is not None:
            return found
        if (ended := self._ended.get(ask_id)) is not None:
            raise AskNotFoundError(
                f"ask {ask_id} has ended: {ended.outcome}", hint="the first answer counts, and no later one"
            )
        raise AskNotFoundError(f"there is no ask {ask_id[:64]!r}", hint="`atoll asks` lists those that wait")

    def get(self, ask_id: str) -> Ask:
        """Return an ask that waits, or one that has ended lately.

        Raises:
            AskNotFoundError: There is none.
        """
        return self._ended[ask_id] if ask_id in self._ended else self.of(ask_id).value

    def pending(self, team: str | None = None, sandbox_id: str | None = None) -> list[Ask]:
        """Return the asks of a team's sandboxes, or of one, that wait; None is all."""
        return [
            one.value
            for one in self._pending.values()
            if team in (None, one.value.team) and sandbox_id in (None, one.value.sandbox_id)
        ]

    async def changed(self, since: int) -> None:
        """Wait until the version is another one, or the supervisor ends."""
        while self.version == since and not self.closed:
            await self._changed.wait()

    def close(self) -> None:
        """Have nobody wait for a change any more."""
        self.closed = True
        self._changed.set()

    def _note(self) -> None:
        self.version += 1
        self._changed.set()
        if not self.closed:
            self._changed = asyncio.Event()


def _same(one: Ask, other: Ask) -> bool:
    def place(ask: Ask) -> tuple[str, ...]:
        if ask.kind == "question":
            return (ask.sandbox_id, ask.title)
        return (ask.sandbox_id, ask.method, ask.scheme, ask.host, str(ask.port), ask.path.partition("?")[0])

    return one.kind == other.kind and place(one) == place(other)
