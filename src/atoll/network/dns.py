"""Answers the guest's DNS questions with the answers of the host's nameservers."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence

from atoll.network import dnsmessage
from atoll.network.acceptor import Acceptor
from atoll.network.pace import Pace

Nameservers = Callable[[], Sequence[tuple[str, int]]]

MAX_QUESTIONS = 256
MAX_STREAMS = 32
STREAMS_PER_S = 50
# A guest that asks more often would delay other guests in this process.
QUESTIONS_PER_S = 500
QUESTIONS_AT_ONCE = 512
_SERVER_TIMEOUT_S = 2.5
_TIMEOUT_S = 10.0
_STREAM_IDLE_S = 20.0
_LONGEST_BYTES = 65535
_RECEIVES = 8
_SHORTEST_PAUSE_S = 0.02


class NameForwarder:
    """The nameserver of one sandbox. It understands only enough of a message to pass it on safely.

    Each question goes to the host's nameservers in turn, with its own socket and id. Only an answer from the
    nameserver that was asked, with that id and that question, is sent back to the guest.

    Args:
        datagrams: Bound in the edge for questions by UDP; the forwarder owns it from now on.
        listener: Listens in the edge for questions by TCP; the forwarder owns it too.
        nameservers: Returns the addresses and ports to ask.
    """

    def __init__(self, datagrams: socket.socket, listener: socket.socket, nameservers: Nameservers) -> None:
        self.answering = True
        self._datagrams = datagrams
        self._nameservers = nameservers
        self._questions: set[asyncio.Task[None]] = set()
        self._streams: set[asyncio.Task[None]] = set()
        self._pace = Pace(QUESTIONS_PER_S, QUESTIONS_AT_ONCE)
        self._resumption: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self._listen()
        self._acceptor = Acceptor(listener, self._take, Pace(STREAMS_PER_S, MAX_STREAMS))

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
        if not self.answering:
            return dnsmessage.REFUSED
        if len(self._questions) >= MAX_QUESTIONS:
            return dnsmessage.SERVER_FAILED
        return None

    async def _answer(self, query: bytes, ask: Ask) -> bytes | None:
        hidden = dnsmessage.with_id(query, secrets.randbelow(1 << 16))
        reply = await _ask_all(hidden, self._nameservers(), ask)
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
                    query = await _receive_framed(guest)
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


async def ask_by_datagram(query: bytes, server: tuple[str, int]) -> bytes:
    """Ask one nameserver by UDP and return its answer, which may be truncated.

    Raises:
        OSError: It cannot be asked.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(_family(server), socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as asking:
        asking.connect(server)
        await loop.sock_sendall(asking, query)
        while True:
            reply = await loop.sock_recv(asking, _LONGEST_BYTES)
            if dnsmessage.answers(query, reply):
                return reply


async def ask_by_stream(query: bytes, server: tuple[str, int]) -> bytes:
    """Ask one nameserver by TCP.

    Raises:
        OSError: It cannot be asked, or answers another question.
        EOFError: It closed the connection.
    """
    loop = asyncio.get_running_loop()
    with socket.socket(_family(server), socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as asking:
        await loop.sock_connect(asking, server)
        await loop.sock_sendall(asking, struct.pack(">H", len(query)) + query)
        reply = await _receive_framed(asking)
        if not dnsmessage.answers(query, reply):
            raise OSError(f"{server[0]} answered a different question")
        return reply


Ask = Callable[[bytes, tuple[str, int]], Coroutine[None, None, bytes]]


async def _ask_all(query: bytes, servers: Sequence[tuple[str, int]], ask: Ask) -> bytes | None:
    unwilling = None
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TIMEOUT_S):
            for server in [*servers, *servers]:
                with contextlib.suppress(OSError, EOFError):
                    async with asyncio.timeout(_SERVER_TIMEOUT_S):
                        reply = await ask(query, server)
                    if dnsmessage.code(reply) not in dnsmessage.UNWILLING:
                        return reply
                    unwilling = reply
    return unwilling


async def _receive_framed(stream: socket.socket) -> bytes:
    (length,) = struct.unpack(">H", await _receive_exactly(stream, 2))
    return await _receive_exactly(stream, length)


async def _receive_exactly(stream: socket.socket, count: int) -> bytes:
    loop = asyncio.get_running_loop()
    data = b""
    while len(data) < count:
        more = await loop.sock_recv(stream, count - len(data))
        if not more:
            raise EOFError
        data += more
    return data


def _family(server: tuple[str, int]) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in server[0] else socket.AF_INET


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[None, None, None]) -> asyncio.Task[None]:
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
    return task
