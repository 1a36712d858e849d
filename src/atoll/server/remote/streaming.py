"""Answers that are sent piece by piece, until they end or the client leaves."""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import AsyncIterator, Sequence

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from atoll.server.remote.leaving import disconnected


class StreamedAnswer(Response):
    """Sends pieces as they come. When a client leaves, nothing more of it is sent.

    Args:
        status: The status of HTTP.
        headers: The headers, as they are sent.
    """

    def __init__(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self.status_code = status
        self.background = None
        self.raw_headers = list(headers)

    @abstractmethod
    def pieces(self) -> AsyncIterator[bytes]:
        """Iterate over the pieces of the body."""

    @abstractmethod
    def end(self) -> None:
        """Free the source of the pieces. Called once, whether the client has left or not."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the answer."""
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(disconnected(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            leaving.cancel()
            sending.cancel()
            self.end()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async for piece in self.pieces():
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
