"""The channel to the relay for its events, and for its slow answers."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from pathlib import Path

from atoll.network.channel import Channel, Message
from atoll.network.relay_calls import checked
from atoll.network.seqpacket import connect_to

_ASK_S = 30.0


class RelayTalk:
    """A conversation with the relay.

    Args:
        path: Where the relay listens.
        heard: Called with each message that is no answer.
        ended: Called once, when the relay is gone or breaks the protocol.

    Raises:
        OSError: The relay does not run.
    """

    def __init__(self, path: Path, heard: Callable[[Message], None], ended: Callable[[], None]) -> None:
        self._heard = heard
        self._ids = itertools.count(1)
        self._asked: dict[int, asyncio.Future[Message]] = {}
        self._channel = Channel(connect_to(path), self._on_message, ended)

    async def ask(self, message: Message) -> Message:
        """Ask for something that takes it a while.

        Raises:
            RelayError: The relay refuses, or cannot.
            OSError: The relay does not run.
            TimeoutError: The relay does not answer in time.
        """
        number = next(self._ids)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._asked[number] = answer
        try:
            self._channel.send({**message, "id": number})
            async with asyncio.timeout(_ASK_S):
                return checked(await answer)
        finally:
            self._asked.pop(number, None)

    def send(self, message: Message, fd: int | None = None) -> None:
        """Tell it something, with a descriptor that this closes. A message may be lost with the relay."""
        with contextlib.suppress(OSError):
            self._channel.send(message, fd)

    def close(self) -> None:
        """Close the channel. Pending questions get no answer. Idempotent."""
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(ConnectionError("the relay ended"))
        self._channel.close()

    def _on_message(self, message: Message) -> None:
        if message["op"] != "answer":
            self._heard(message)
            return
        answer = self._asked.get(message.get("id", 0))
        if answer is not None and not answer.done():
            answer.set_result(message)
