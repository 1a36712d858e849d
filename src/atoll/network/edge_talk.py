"""The channel to the edge, and how its process is started."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from atoll.host import LeftProgram
from atoll.network.channel import Channel, Message
from atoll.network.seqpacket import connect_to

PROTOCOL = 3
_HELLO_S = 5.0


@dataclass(frozen=True)
class EdgeProgram:
    """The means to start the edge and to find it again, and its first settings.

    Args:
        argv: Returns the program and its arguments.
        config: Returns the authority's certificate and key, and the certificates that verify servers, as PEM.
        socket: The path of its listener.
        started: Called with the process's pid and start time before any message to it. An OSError ends the
            process.
        earlier: Returns the edge of an earlier supervisor; None if none runs.
        guardian: Returns a descriptor of a process, for the caller to close. Without a supervisor, the edge
            lives as long as this process. None ends it with its supervisor.
    """

    argv: Callable[[], tuple[str, ...]]
    config: Callable[[], Mapping[str, str]]
    socket: Path
    started: Callable[[int, int], None] = lambda *_: None
    earlier: Callable[[], LeftProgram | None] = lambda: None
    guardian: Callable[[], int | None] = lambda: None


@dataclass(frozen=True)
class Greeting:
    """The state of an edge when its owner connects.

    Args:
        confined: The rights that it has given up.
        pair: The name of its channel to the relay; empty if it has none.
        policies: The versions of the policies in force, by sandbox.
        holds: What it holds of budgets for models. None is an edge without models.
    """

    confined: str
    pair: str
    policies: Mapping[str, int]
    holds: Message | None = None


class EdgeTalk:
    """A conversation with the edge, as its owner. The owner before is cut off.

    Args:
        path: Where the edge listens.
        heard: Called with each message after ``greet``.
        ended: Set when the edge is gone or breaks the protocol.

    Raises:
        OSError: It does not run.
    """

    def __init__(self, path: Path, heard: Callable[[Message], None], ended: asyncio.Event) -> None:
        self._heard = heard
        self._ended = ended
        self._first: asyncio.Queue[Message] = asyncio.Queue()
        self._are_early_heard = False
        self._channel = Channel(connect_to(path), self._on_message, ended.set)

    async def greet(self, config: Mapping[str, str]) -> Greeting:
        """Become the owner, and have the edge use a configuration.

        Raises:
            OSError: It ends, speaks another protocol, or has another configuration.
            TimeoutError: It does not answer.
        """
        name = hashlib.sha256((config["ca_certificate"] + config["ca_key"]).encode()).hexdigest()
        self.send({"op": "hello", "protocol": PROTOCOL})
        policies: dict[str, int] = {}
        holds: Message | None = None
        early: list[Message] = []
        async with asyncio.timeout(_HELLO_S):
            while (said := await self._next())["op"] in ("known", "holds"):
                if said["op"] == "holds":  # many budgets come in several messages
                    before = {} if holds is None else holds["budgets"]
                    holds = {**said, "budgets": {**before, **said["budgets"]}}
                else:
                    policies |= said["policies"]
            if error := said.get("error"):
                raise OSError(str(error)[:1000])
            if said.get("config") not in ("", name):
                raise OSError("the home has another authority now")
            self.send_document({"op": "config", "config": name}, config)
            while (ready := await self._next())["op"] != "ready":
                if ready["op"] == "log" and not said.get("config"):
                    raise OSError(f"it cannot be configured: {str(ready.get('text'))[:1000]}")
                early.append(ready)
        confined = ", ".join(said.get("confined") or ()) or "nothing"
        greeting = Greeting(confined, str(said.get("pair", "")), policies, holds)
        # Deliver the early messages once the caller has handled the greeting.
        asyncio.get_running_loop().call_soon(self._hear_early, early)
        return greeting

    def send(self, message: Message, fd: int | None = None) -> None:
        """Tell it something, with a descriptor that is closed here.

        Raises:
            OSError: It has ended, or does not read.
        """
        self._channel.send(message, fd)

    def send_document(self, message: Message, document: object) -> None:
        """Tell it something of any size.

        Raises:
            OSError: It has ended, or memory is short.
        """
        self._channel.send_document(message, document)

    def close(self) -> None:
        """Close it. Idempotent."""
        self._channel.close()

    async def _next(self) -> Message:
        coming = asyncio.ensure_future(self._first.get())
        ending = asyncio.ensure_future(self._ended.wait())
        try:
            await asyncio.wait({coming, ending}, return_when=asyncio.FIRST_COMPLETED)
            if not coming.done():
                raise OSError("it ended before it was ready")
            return coming.result()
        finally:
            coming.cancel()
            ending.cancel()

    def _on_message(self, message: Message) -> None:
        if self._are_early_heard:
            self._heard(message)
        else:
            self._first.put_nowait(message)

    def _hear_early(self, early: list[Message]) -> None:
        for message in early:
            self._heard(message)
        while not self._first.empty():
            self._heard(self._first.get_nowait())
        self._are_early_heard = True
