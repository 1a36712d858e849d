"""Tunnels: a WebSocket whose messages are the bytes of a connection to a port of a sandbox.

The first message is a text, the JSON of a ``DialAnswer``. After it, binary messages are bytes, and the text ``end``
is the end of one direction. The tunnel closes with 1000 when both directions have ended, and with 1011 when the
connection inside is cut.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket

from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from atoll.errors import AtollError, InvalidSpecError
from atoll.protocol import TUNNEL_END, TUNNEL_PROTOCOL, DialAnswer, encode, error_body
from atoll.sdk import AsyncSandbox
from atoll.server.auth.access import Access
from atoll.server.auth.access_log import note
from atoll.server.e2b.answers import Refusal
from atoll.server.remote.asked import Asked
from atoll.types import TeamInfo

_BYTES = 256 << 10
_NORMAL, _CUT = 1000, 1011
# TCP states after the peer's FIN, whether or not this side has ended too
_ENDED_BY_PEER = (6, 7, 8, 9, 11)


def dial_route(path: str, access: Access) -> WebSocketRoute:
    """Return the route of tunnels."""

    async def dial(client: WebSocket) -> None:
        try:
            team = await access.team_of(client.headers)
        except Refusal:
            await client.close()  # before it is accepted: HTTP status 403
            return
        if TUNNEL_PROTOCOL not in client.scope.get("subprotocols", []):
            await client.close()
            return
        await client.accept(subprotocol=TUNNEL_PROTOCOL)
        with contextlib.suppress(WebSocketDisconnect, OSError, RuntimeError):
            await _tunnel(client, team)

    return WebSocketRoute(path, dial)


async def _tunnel(client: WebSocket, team: TeamInfo) -> None:
    try:
        inside, sandbox_id = await _dialled(client, team)
    except AtollError as error:
        answer = DialAnswer(error=error_body(error))
        await client.send_text(encode(answer).decode())
        await client.close(_NORMAL)
        return
    try:
        note().sandbox_id = sandbox_id
        await client.send_text(encode(DialAnswer(sandbox_id=sandbox_id)).decode())
        await _carried(client, inside)
    finally:
        inside.close()


async def _dialled(client: WebSocket, team: TeamInfo) -> tuple[socket.socket, str]:
    ref, port = client.query_params.get("sandbox", ""), client.query_params.get("port", "")
    if not port.isascii() or not port.isdigit() or len(port) > 5:
        raise InvalidSpecError(f"port {port[:16]!r} is not between 1 and 65535")
    info = await Asked(team, {}, {}, None).sandbox(ref)
    with contextlib.closing(AsyncSandbox.of(info)) as sandbox:
        return await sandbox.ports.dial(int(port)), info.sandbox_id


async def _carried(client: WebSocket, inside: socket.socket) -> None:
    """Carry bytes both ways until both directions have ended, or a side is gone."""
    inwards = asyncio.ensure_future(_inwards(client, inside))
    outwards = asyncio.ensure_future(_outwards(client, inside))
    try:
        done, _ = await asyncio.wait({inwards, outwards}, return_when=asyncio.FIRST_EXCEPTION)
        failed = any(each.exception() is not None for each in done)
    finally:
        for each in (inwards, outwards):
            each.cancel()
        await asyncio.gather(inwards, outwards, return_exceptions=True)
    await client.close(_CUT if failed else _NORMAL)


async def _inwards(client: WebSocket, inside: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while True:
        message = await client.receive()
        if message["type"] == "websocket.disconnect":
            raise ConnectionResetError("the client left")
        data = message.get("bytes")
        if data is not None:
            await loop.sock_sendall(inside, data)
        elif message.get("text") == TUNNEL_END:
            inside.shutdown(socket.SHUT_WR)
            return


async def _outwards(client: WebSocket, inside: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(inside, _BYTES):
        await client.send_bytes(data)
    if not _has_ended_by_itself(inside):
        raise ConnectionResetError("the supervisor cut the connection")
    await client.send_text(TUNNEL_END)


def _has_ended_by_itself(inside: socket.socket) -> bool:
    """Tell an end by the guest from a cut by the supervisor, which shuts down this very socket.

    After the guest's end the connection is in CLOSE_WAIT or a later state. After a cut it waits for the guest's end.
    """
    try:
        state = inside.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0]
    except OSError:
        return False
    return state in _ENDED_BY_PEER
