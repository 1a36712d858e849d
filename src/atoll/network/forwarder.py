"""Answers the guest's DNS questions with the answers of the host's nameservers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from collections.abc import Coroutine

from atoll.network import dnsmessage
from atoll.network.acceptor import Acceptor
from atoll.network.dnsclient import Ask, Nameservers, ask_all, ask_by_datagram, ask_by_stream, receive_framed
from atoll.network.naming import NamedAnswers
from atoll.network.pace import Pace

MAX_QUESTIONS = 256
MAX_STREAMS = 32
STREAMS_PER_S = 50
# A guest that asks more often would delay other guests in this process.
QUESTIONS_PER_S = 500
QUESTIONS_AT_ONCE = 512
_STREAM_IDLE_S = 20.0
_LONGEST_BYTES = 65535
_RECEIVES = 8
_SHORTEST_PAUSE_S = 0.02


class NameForwarder:
    """The nameserver of one sandbox.

    Without rules it understands only enough of a message to pass it on safely. Each question goes to the
    host's nameservers in turn, with its own socket and id. Only an answer from the nameserver that was asked,
    with that id and that question, is sent back to the guest. With rules ``NamedAnswers`` makes the answers.

    Args:
        datagrams: Bound in the outer namespace for questions by UDP; the forwarder owns it from now on.
        listener: Listens in the outer namespace for questions by TCP; the forwarder owns it too.
        nameservers: Returns the addresses and ports to ask.
        named: Makes the answers where there are rules; None answers as if there were none.
    """

    def __init__(
        self,
        datagrams: socket.socket,
        listener: socket.socket,
        nameservers: Nameservers,
        named: NamedAnswers | None = None,
    ) -> None:
        self._named = named
        self._datagrams = datagrams
        self._nameservers = nameservers
        self._questions: set[asyncio.Task[None]] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._pace = Pace(QUESTIONS_PER_S, QUESTIONS_AT_ONCE)
        self._resumption: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._listen()
        self._acceptor = Acceptor(listener, self._take, Pace(STREAMS_PER_S, MAX_STREAMS))

    @property
    def is_asked(self) -> bool:
        """Whether the guest has a connection to it, or is about to have one."""
        return bool(self._streams) or self._acceptor.has_waiting

    async def aclose(self) -> None:
        """Close both sockets and leave open questions unanswered."""
        self._acceptor.close()
        if self._resumption:
            self._resumption.cancel()
        self._loop.remove_reader(self._datagrams)
        tasks = [*self._questions, *self._streams]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._datagrams.close()

    def _listen(self) -> None:
        self._loop.add_reader(self._datagrams, self._on_datagram)

    def _on_datagram(self) -> None:
        for _ in range(_RECEIVES):
            if (wait_s := self._pace.wait_s()) > 0:
                # Meanwhile questions wait in the kernel's queue; when it is full, more are lost.
                self._loop.remove_reader(self._datagrams)
                self._resumption = self._loop.call_later(max(wait_s, _SHORTEST_PAUSE_S), self._listen)
                return
            try:
                query, asker = self._datagrams.recvfrom(_LONGEST_BYTES)
            except OSError:
                return
            self._pace.take()
            refused = self._refused(query)
            if refused is not None:
                self._reply(dnsmessage.failure(query, refused), asker)
            else:
                _spawn(self._questions, self._answer_datagram(query, asker))

    async def _answer_datagram(self, query: bytes, asker: tuple[str, int]) -> None:
        self._reply(await self._answer(query, ask_by_datagram), asker)

    def _reply(self, answer: bytes | None, asker: tuple[str, int]) -> None:
        if answer is None:
            return
        # A guest that does not read its answers loses them, as on any network.
        with contextlib.suppress(OSError):
            self._datagrams.sendto(answer, asker)

    def _refused(self, query: bytes) -> int | None:
        if not dnsmessage.is_query(query):
            return dnsmessage.MALFORMED
        if len(self._questions) >= MAX_QUESTIONS:
            return dnsmessage.SERVER_FAILED
        return None

    async def _answer(self, query: bytes, ask: Ask) -> bytes | None:
        if self._named is not None and self._named.needed:
            return await self._named.answer(query)
        hidden = dnsmessage.with_id(query, secrets.randbelow(1 << 16))
        reply = await ask_all(hidden, self._nameservers(), ask)
        if reply is None:
            return dnsmessage.failure(query, dnsmessage.SERVER_FAILED)
        return query[:2] + reply[2:]

    def _take(self, guest: socket.socket, _peer: tuple[str, int]) -> None:
        if len(self._streams) >= MAX_STREAMS:
            return guest.close()
        serving = _spawn(self._streams, self._serve_stream(guest))
        # Not in the task itself: a task that is cancelled early never runs.
        serving.add_done_callback(lambda _: guest.close())
        return None

    async def _serve_stream(self, guest: socket.socket) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                # A ready socket does not wait, so a guest that floods would keep the event loop to itself.
                await asyncio.sleep(self._pace.wait_s())
                async with asyncio.timeout(_STREAM_IDLE_S):
                    query = await receive_framed(guest)
                self._pace.take()
                refused = self._refused(query)
                if refused is not None:
                    answer = dnsmessage.failure(query, refused)
                else:
                    answer = await self._answer(query, ask_by_stream)
                if answer is None:
                    return
                async with asyncio.timeout(_STREAM_IDLE_S):
                    await self._loop.sock_sendall(guest, struct.pack(">H", len(answer)) + answer)


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
