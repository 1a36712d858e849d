"""Tells a webhook of asks, and takes an answer from its reply."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError
from atoll.supervisor.lifecycle.asks import WEBHOOK, check_answer
from atoll.supervisor.lifecycle.signed_posts import PostError, SignedPosts
from atoll.supervisor.lifecycle.untold import Untold, tried
from atoll.types import Answer
from atoll.types.internal import from_json

if TYPE_CHECKING:
    from atoll.supervisor.state.asks import PendingAsk
    from atoll.types import Ask

_AT_ONCE = 8
_WAITING_MOST = 256
_BODY_BYTES = 512 << 10


class _Reply(msgspec.Struct, frozen=True):
    """What counts as an answer in a reply. All else in it is ignored."""

    allow: bool
    digest: str
    reason: str = ""


@dataclass(eq=False, repr=False)
class AskWebhook:
    """Posts ``ask.begun`` and then ``ask.ended`` of each ask."""

    posts: SignedPosts
    answer: Callable[[str, Answer, str], Awaitable[Ask]]
    untold: Untold
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _waiting: int = field(default=0, init=False)

    def is_open(self) -> bool:
        """Whether it can tell."""
        return True

    async def tell(self, pending: PendingAsk) -> None:
        """Tell of an ask, and of its end if the ask itself was told."""
        reply = await self._posted("ask.begun", pending, while_pending=True)
        if reply is None:
            return
        await self._take(pending, reply)
        await pending.ended.wait()
        await self._posted("ask.ended", pending, while_pending=False)

    async def _posted(self, event: str, pending: PendingAsk, *, while_pending: bool) -> bytes | None:
        """Post an event, and return the reply; None if that failed, or had no point any more."""
        if self._waiting >= _WAITING_MOST:
            self.untold.note(pending.value, f"{_WAITING_MOST} others wait for it already")
            return None
        replies: list[bytes] = []

        async def attempt() -> None:
            replies.append(await self.posts.post(event, _told(pending.value)))

        self._waiting += 1
        try:
            async with self._turns:
                why = await tried(attempt, pending if while_pending else None)
        finally:
            self._waiting -= 1
        if why is not None:
            self.untold.note(pending.value, why)
        return replies[0] if replies else None

    async def _take(self, pending: PendingAsk, reply: bytes) -> None:
        """Answer the ask if the reply says how. It must name the digest that was posted."""
        try:
            said = from_json(reply, _Reply)
        except msgspec.DecodeError:
            return
        answer = Answer(digest=said.digest, allow=said.allow, reason=said.reason)
        try:
            check_answer(answer)
            await self.answer(pending.value.ask_id, answer, WEBHOOK)
        except AtollError as error:
            self.untold.log(
                f"gave an answer to ask {pending.value.ask_id} that does not count: {error.message}"
            )


def _told(ask: Ask) -> bytes:
    body = msgspec.json.encode(ask)
    if len(body) > _BODY_BYTES:
        body = msgspec.json.encode(msgspec.structs.replace(ask, body=None))
    if len(body) > _BODY_BYTES:
        raise PostError(f"it is over {_BODY_BYTES >> 10} KiB", may_pass=False)
    return body
