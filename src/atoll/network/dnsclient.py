"""Asks nameservers."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable, Coroutine, Sequence

from atoll.network import dnsmessage

Nameservers = Callable[[], Sequence[tuple[str, int]]]

_SERVER_TIMEOUT_S = 2.5
_TIMEOUT_S = 10.0
_LONGEST_BYTES = 65535


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
        reply = await receive_framed(asking)
        if not dnsmessage.answers(query, reply):
            raise OSError(f"{server[0]} answered a different question")
        return reply


Ask = Callable[[bytes, tuple[str, int]], Coroutine[None, None, bytes]]


async def ask_all(query: bytes, servers: Sequence[tuple[str, int]], ask: Ask) -> bytes | None:
    """Ask nameservers in turn, twice, until one answers; None if none does.

    A refusal is returned only if no other one answers.
    """
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


async def receive_framed(stream: socket.socket) -> bytes:
    """Receive a message with its length before it, as DNS by TCP has it.

    Raises:
        OSError, EOFError: The connection ends before.
    """
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
