"""Passes a WebSocket through the gateway: messages as whole messages, and its end as an end."""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Iterator

from starlette.types import Message, Receive, Send
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from atoll.errors import AtollError
from atoll.server.gateway.connection_pool import ConnectionPool
from atoll.server.gateway.connections import Connection
from atoll.server.gateway.headers import spelled, to_client
from atoll.server.gateway.rejections import Rejection, rejection_of
from atoll.server.gateway.request import GatewayRequest
from atoll.server.gateway.sandbox_cache import CachedSandbox

_MESSAGE_BYTES = 16 << 20
# for incomplete messages, in all tunnels together
_ALL_BYTES = 256 << 20
# The size of one read. A guest may send frames of two bytes, and other clients wait while they are parsed.
_READ_BYTES = 8 << 10
_REJECTION_BYTES = 1 << 20
_ABNORMAL, _TOO_BIG, _POLICY_VIOLATION, _NO_CODE, _NORMAL = 1011, 1009, 1008, 1005, 1000
_REASON_BYTES = 120


class Tunnel:
    """Brings one WebSocket into a sandbox. The arguments are those of an ``Exchange``."""

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
        self._socket = WSConnection(ConnectionType.CLIENT)
        # no lists of pieces: a guest may send any number of empty ones
        self._text = io.StringIO()
        self._bytes = bytearray()
        self._held = 0
        self._over = False

    async def run(self) -> None:
        """Run the whole tunnel.

        Raises:
            Rejection: The answer for the client, if none has begun.
        """
        try:
            connection = await self._connections.take(self._request.target, self._sandbox, fresh=True)
        except AtollError as error:
            raise rejection_of(error, self._request.target) from None
        try:
            rest = await self._shake_hands(connection)
            if rest is not None:
                await self._carry(connection, rest)
        finally:
            self._let_go()
            self._connections.drop(connection)

    async def refuse(self, rejection: Rejection) -> None:
        """End the tunnel early."""
        await self._close(_POLICY_VIOLATION, rejection.message)

    async def _shake_hands(self, connection: Connection) -> list[Event] | None:
        """Open the WebSocket inside and answer the client alike. Returns None if it was rejected."""
        await self._receive()
        request = self._request
        opening = Request(
            host=request.host.decode("latin-1"),
            target=request.line_target.decode("latin-1"),
            subprotocols=_subprotocols(request),
            extra_headers=spelled([pair for pair in request.for_guest() if pair[0] != b"host"]),
        )
        try:
            await connection.send(self._socket.send(opening))
            while True:
                events = self._received(await connection.receive(_READ_BYTES))
                for index, event in enumerate(events):
                    if isinstance(event, AcceptConnection):
                        await self._send({"type": "websocket.accept", "subprotocol": event.subprotocol})
                        return events[index + 1 :]
                    if isinstance(event, RejectConnection):
                        await self._rejected(connection, event, events[index + 1 :])
                        return None
                if self._over:
                    raise ConnectionResetError("it ended before an answer")
        except (OSError, RemoteProtocolError, LocalProtocolError):
            raise Rejection(
                502, "The server in the sandbox speaks no WebSocket", request.target, names_port=True
            ) from None

    async def _rejected(self, connection: Connection, event: RejectConnection, events: list[Event]) -> None:
        body = bytearray()
        finished = not event.has_body
        while True:
            for each in events:
                if isinstance(each, RejectData):
                    body += each.data
                    finished = finished or each.body_finished
            if finished or self._over or len(body) > _REJECTION_BYTES:
                break
            events = self._received(await connection.receive(_READ_BYTES))
        headers = to_client([(name.lower(), value) for name, value in event.headers])
        if event.status_code < 300:
            raise RemoteProtocolError("it accepts the upgrade with an invalid answer")
        await self._send(
            {"type": "websocket.http.response.start", "status": event.status_code, "headers": headers}
        )
        await self._send({"type": "websocket.http.response.body", "body": bytes(body)})

    async def _carry(self, connection: Connection, events: list[Event]) -> None:
        inwards = asyncio.ensure_future(self._inwards(connection))
        try:
            await self._outwards(connection, events)
        except (OSError, RemoteProtocolError, LocalProtocolError):
            await self._close(_ABNORMAL, "the connection into the sandbox ended")
        finally:
            inwards.cancel()

    async def _inwards(self, connection: Connection) -> None:
        """Pass the client's messages in."""
        while True:
            message = await self._receive()
            if message["type"] != "websocket.receive":
                break
            text, data = message.get("text"), message.get("bytes")
            event = TextMessage(data=text) if text is not None else BytesMessage(data=data or b"")
            try:
                await connection.send(self._socket.send(event))
            except (OSError, LocalProtocolError):
                return
        self._over = True
        code = message.get("code") or _NORMAL
        with contextlib.suppress(OSError, LocalProtocolError):
            await connection.send(self._socket.send(CloseConnection(_NORMAL if code == _NO_CODE else code)))
        connection.abort()

    async def _outwards(self, connection: Connection, events: list[Event]) -> None:
        """Pass the messages of the server inside out."""
        while True:
            for event in events:
                if isinstance(event, Ping):
                    await connection.send(self._socket.send(event.response()))
                elif isinstance(event, CloseConnection):
                    await self._close(event.code, event.reason or "")
                    await connection.send(self._socket.send(event.response()))
                    return
                elif isinstance(event, (TextMessage, BytesMessage)) and not await self._passed_on(event):
                    return
            if self._over:
                return
            events = self._received(await connection.receive(_READ_BYTES))
            if self._over and not events:
                raise ConnectionResetError("it ended without a close frame")

    async def _passed_on(self, event: TextMessage | BytesMessage) -> bool:
        """Pass a message on when it is complete. Returns False if it is larger than anybody needs."""
        if isinstance(event, TextMessage):
            self._text.write(event.data)
        else:
            self._bytes += event.data
        self._held += len(event.data)
        self._connections.held_bytes += len(event.data)
        if self._held > _MESSAGE_BYTES or self._connections.held_bytes > _ALL_BYTES:
            await self._close(_TOO_BIG, "a message is too long")
            return False
        if event.message_finished:
            await self._send(self._whole(event))
            self._let_go()
        return True

    def _whole(self, event: TextMessage | BytesMessage) -> Message:
        if isinstance(event, TextMessage):
            text, self._text = self._text.getvalue(), io.StringIO()
            return {"type": "websocket.send", "text": text}
        data, self._bytes = bytes(self._bytes), bytearray()
        return {"type": "websocket.send", "bytes": data}

    def _let_go(self) -> None:
        self._connections.held_bytes -= self._held
        self._held = 0

    def _received(self, data: bytes) -> list[Event]:
        if not data:
            self._over = True
            return []
        self._socket.receive_data(data)
        return list(_events(self._socket))

    async def _close(self, code: int, reason: str) -> None:
        await self._send({"type": "websocket.close", "code": _plain(code), "reason": reason[:_REASON_BYTES]})


def _events(socket: WSConnection) -> Iterator[Event]:
    yield from socket.events()


def _plain(code: int) -> int:
    """Return a close code that can be sent. Some codes only ever mean that none was received."""
    return _NORMAL if code in (_NO_CODE, 1006, 1015) else code


def _subprotocols(request: GatewayRequest) -> list[str]:
    values = [value for name, value in request.headers if name == b"sec-websocket-protocol"]
    return [each.strip() for each in b",".join(values).decode("latin-1").split(",") if each.strip()]
