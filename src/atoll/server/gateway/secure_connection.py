"""Connections to ports of sandboxes that speak HTTPS."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import ssl
from collections.abc import Callable
from typing import TypeVar

from atoll.server.gateway.connections import LARGE_BYTES, Connection
from atoll.server.gateway.hosts import Target

_GREETING_S = 15.0
_Result = TypeVar("_Result")


class SecureConnection(Connection):
    """A connection in TLS. It need not verify the certificate: the supervisor made the way to the server."""

    def __init__(self, sock: socket.socket, target: Target) -> None:
        super().__init__(sock, target)
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._incoming, self._outgoing)
        self._flushing = asyncio.Lock()

    async def greet(self) -> None:
        """Agree on keys. Call it first.

        Raises:
            OSError: The server does not speak TLS, or ends.
            TimeoutError: It says nothing.
        """
        async with asyncio.timeout(_GREETING_S):
            await self._through(self._tls.do_handshake)

    async def send(self, data: bytes) -> None:
        """See ``Connection``."""
        self._tls.write(data)
        await self._flush()

    async def receive(self, most_bytes: int = LARGE_BYTES) -> bytes:
        """See ``Connection``."""
        # many servers end TLS without notice, and an answer's length is known from its head
        with contextlib.suppress(ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return await self._through(lambda: self._tls.read(most_bytes))
        return b""

    def is_quiet(self) -> bool:
        """See ``Connection``."""
        return not self._incoming.pending and not self._tls.pending() and super().is_quiet()

    async def _through(self, step: Callable[[], _Result]) -> _Result:
        while True:
            try:
                result = step()
            except ssl.SSLWantReadError:
                await self._flush()
                data = await super().receive()
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            else:
                await self._flush()
                return result

    async def _flush(self) -> None:
        # keep the order of encryption
        async with self._flushing:
            while data := self._outgoing.read():
                await super().send(data)


@functools.cache
def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context
