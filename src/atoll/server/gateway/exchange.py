"""Streams one HTTP request through the gateway, and its answer back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

from starlette.types import Message, Receive, Send

from atoll.errors import AtollError
from atoll.server.gateway.connection_pool import ConnectionPool
from atoll.server.gateway.connections import Connection
from atoll.server.gateway.headers import Headers, to_client
from atoll.server.gateway.rejections import Rejection, rejection_of
from atoll.server.gateway.request import GatewayRequest
from atoll.server.gateway.response import GuestError, Head, ResponseParser
from atoll.server.gateway.sandbox_cache import CachedSandbox

_BODILESS = frozenset({"GET", "HEAD", "OPTIONS", "TRACE"})
# a body up to this length is awaited, so that it is sent together with the head
_SMALL_BYTES = 16 << 10
_PATIENCE_S = 0.05
_REPEATABLE = frozenset({"GET", "HEAD", "OPTIONS"})


class CutError(Exception):
    """Reports that the answer cannot be finished. The HTTP server then breaks off the client's stream.

    Args:
        message: The cause.
        abrupt: Whether the connection ended with the sandbox, and not by the server inside.
    """

    def __init__(self, message: str, *, abrupt: bool = False) -> None:
        super().__init__(message)
        self.abrupt = abrupt


class Exchange:
    """Brings one request into a sandbox and its answer back.

    Args:
        request: The admitted request.
        sandbox: The request's sandbox.
        connections: The source of connections.
        receive: Receives from the client, as in ASGI.
        send: Sends to the client, as in ASGI.
    """

    def __init__(
        self,
        request: GatewayRequest,
        sandbox: CachedSandbox,
        connections: ConnectionPool,
        receive: Receive,
        send: Send,
    ) -> None:
        self._request = request
        self._sandbox = sandbox
        self._connections = connections
        self._receive = receive
        self._send = send
        self._chunked = False
        self._body_over = False
        self._left: int | None = None
        self._client_gone = False
        self._started = False
        self._late = False

    async def run(self) -> None:
        """Run the whole exchange.

        Raises:
            Rejection: The answer for the client, if none has begun.
            CutError: The answer has begun and cannot be finished.
        """
        try:
            framing, first = await self._framing()
        except TimeoutError:
            raise self._lateness() from None
        try:
            data = self._request.head(framing) + self._framed(first)
        except ValueError:
            raise Rejection(400, "Invalid request") from None
        # any port may behave in its own way: except to the agent, only repeatable requests use a kept connection
        fresh = not (self._request.is_for_agent or self._is_repeatable)
        while not await self._attempt(data, fresh=fresh):
            fresh = True

    async def refuse(self, rejection: Rejection) -> None:
        """End the exchange early with this answer. If another answer has begun, break that off.

        Raises:
            Rejection: No answer has begun.
            CutError: The answer has begun.
        """
        if self._started:
            raise CutError(rejection.message)
        raise rejection

    async def _attempt(self, data: bytes, *, fresh: bool) -> bool:
        """Try over one connection.

        Returns False if this was a kept connection that had just ended, and nothing is lost.
        """
        connection = await self._connection(fresh=fresh)
        reply = ResponseParser(bodiless=self._request.method == "HEAD")
        reusable = False
        with self._pumping(connection):
            try:
                with contextlib.suppress(OSError):  # it may have answered before it closed
                    await connection.send(data)
                await self._answer(connection, reply)
                reusable = reply.reusable and self._body_over
            except (OSError, GuestError) as error:
                if connection.kept and reply.is_untouched and self._is_repeatable and not self._client_gone:
                    return False
                is_abrupt = not isinstance(error, GuestError) and not connection.has_ended_by_itself()
                self._raise(error, abrupt=is_abrupt)
            finally:
                if reusable:
                    self._connections.give(connection)
                else:
                    self._connections.drop(connection)
        return True

    @property
    def _is_repeatable(self) -> bool:
        return self._body_over and self._request.method in _REPEATABLE

    @contextlib.contextmanager
    def _pumping(self, connection: Connection) -> Iterator[None]:
        """Watch the client's side meanwhile. Most answers arrive before a client could leave."""
        pumps: list[asyncio.Future[None]] = []

        def start() -> None:
            pumps.append(asyncio.ensure_future(self._pump(connection)))

        timer = asyncio.get_running_loop().call_later(_PATIENCE_S if self._body_over else 0, start)
        try:
            yield
        finally:
            timer.cancel()
            for pump in pumps:
                pump.cancel()

    async def _connection(self, *, fresh: bool) -> Connection:
        try:
            return await self._connections.take(self._request.target, self._sandbox, fresh=fresh)
        except AtollError as error:
            raise rejection_of(error, self._request.target) from None

    # the request

    async def _framing(self) -> tuple[Headers, Message | None]:
        """Return the headers for the body's length.

        If the body's first piece was needed to know the length, return it too.
        """
        named = self._request.named
        length = named.get(b"content-length")
        if length is not None:
            if not length.isdigit() or b"transfer-encoding" in named:
                raise Rejection(400, "Invalid request")
            self._left = int(length)
            first = await self._piece() if self._left <= _SMALL_BYTES else None
            return [(b"content-length", length)], first
        if b"transfer-encoding" not in named and (
            not self._request.is_h2 or self._request.method in _BODILESS
        ):
            self._body_over = True
            return [], None
        if self._request.is_h2 and self._request.method == "DELETE":
            # over HTTP/2 a body may come without its length
            first = await self._piece()
            if not first.get("more_body") and not first.get("body"):
                return [], first
            self._chunked = True
            return [(b"transfer-encoding", b"chunked")], first
        self._chunked = True
        return [(b"transfer-encoding", b"chunked")], None

    async def _piece(self) -> Message:
        """Return the next piece of the body.

        Raises:
            TimeoutError: The piece does not come, and nothing was answered yet.
        """
        async with asyncio.timeout(None if self._body_over or self._started else self._request.patience_s):
            return await self._receive()

    def _lateness(self) -> Rejection:
        return Rejection(408, "The body of the request did not arrive", self._request.target)

    def _framed(self, message: Message | None) -> bytes:
        """Return a piece of the body in the form to send."""
        if message is None:
            return b""
        if message["type"] != "http.request":
            self._client_gone = True
            raise CutError("the client disconnected")
        data: bytes = message.get("body", b"")
        ends = not message.get("more_body", False)
        if self._left is not None:
            # check the exact length here, because later requests use the same connection
            self._left -= len(data)
            if self._left < 0 or (ends and self._left):
                raise CutError("the body does not have the announced length")
            ends = not self._left
        if ends:
            self._body_over = True
        if not self._chunked:
            return data
        framed = b"%x\r\n%b\r\n" % (len(data), data) if data else b""
        return framed + b"0\r\n\r\n" if self._body_over else framed

    async def _pump(self, connection: Connection) -> None:
        """Send the rest of the body, then wait for the client to leave."""
        sending = True
        try:
            while True:
                message = await self._piece()
                if message["type"] != "http.request":
                    self._client_gone = True
                    return
                if self._body_over:
                    continue
                data = self._framed(message)
                if sending and data:
                    try:
                        await connection.send(data)
                    except OSError:
                        # it may have answered all the same
                        sending = False
        except TimeoutError:
            # the exception is not kept: its frames would hold the client's side, and so the connection
            self._late = True
        except CutError:
            self._client_gone = True
        finally:
            if self._client_gone or self._late:
                connection.abort()

    # the answer

    async def _answer(self, connection: Connection, reply: ResponseParser) -> None:
        while not reply.complete:
            data = await connection.receive()
            if not data:
                await self._ended(connection, reply)
                return
            reply.feed(data)
            await self._deliver(reply)

    async def _deliver(self, reply: ResponseParser) -> None:
        if reply.head is None:
            return
        if not self._started:
            self._started = True
            start = _start(reply.head)
            if not self._body_over and not self._request.is_h2:
                # an answer before the request's end: the rest of the request may never be read
                start["headers"].append((b"connection", b"close"))
            await self._send({"type": "http.response.start", **start})
        data = reply.take()
        if data or reply.complete:
            await self._send({"type": "http.response.body", "body": data, "more_body": not reply.complete})

    async def _ended(self, connection: Connection, reply: ResponseParser) -> None:
        """Handle the end of the connection. It ends the answer only if the answer has no other end."""
        if reply.head is None or not reply.until_close or not connection.has_ended_by_itself():
            raise ConnectionResetError("the connection ended too early")
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    def _raise(self, error: Exception, *, abrupt: bool) -> None:
        if self._client_gone:
            raise CutError("the client disconnected")
        if self._started:
            raise CutError(str(error), abrupt=abrupt)
        if self._late:
            raise self._lateness()
        if isinstance(error, GuestError):
            raise Rejection(
                502,
                "The server in the sandbox sent an answer that is not HTTP",
                self._request.target,
                names_port=True,
            )
        raise Rejection(502, "The connection into the sandbox ended", self._request.target, names_port=True)


def _start(head: Head) -> Message:
    headers = to_client(head.headers)
    chunked = any(name == b"transfer-encoding" for name, _ in head.headers)
    lengths = [value for name, value in head.headers if name == b"content-length"]
    if lengths and not chunked:
        headers.append((b"content-length", lengths[0]))
    return {"status": head.status, "headers": headers}
