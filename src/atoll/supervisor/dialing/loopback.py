"""Connects to servers on the guest's loopback interface, which only the guest's agent can reach."""

from __future__ import annotations

import asyncio
import socket

from atoll.errors import AgentError
from atoll.guest import HttpClient, loopback
from atoll.protocol import AGENT_PORT
from atoll.supervisor.machines.agent_client import Dials

_HEAD_MOST_BYTES = 4096
_HEAD_END = b"\r\n\r\n"
_SWITCHED = b"101"


async def dial_loopback(link: Dials, port: int, timeout_s: float) -> socket.socket | None:
    """A connected socket, as from ``link.dial``, to a guest's loopback port; None if nothing listens.

    Raises:
        AgentError: The agent's answer is invalid.
        OSError: The agent did not answer in time, or its connection ended.
    """
    connection = await link.dial(AGENT_PORT, timeout_s)
    try:
        async with asyncio.timeout(timeout_s):
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(connection, HttpClient().request(loopback(port)))
            if not _is_led(await _head(connection)):
                connection.close()
                return None
            # The agent sends nothing before this line: the server's own data goes to the user of the socket.
            await loop.sock_sendall(connection, b"\n")
    except BaseException:
        connection.close()
        raise
    return connection


async def _head(connection: socket.socket) -> bytes:
    head = b""
    while _HEAD_END not in head:
        data = await asyncio.get_running_loop().sock_recv(connection, _HEAD_MOST_BYTES - len(head))
        if not data:
            raise AgentError("the guest agent's answer ended too early")
        head += data
    return head


def _is_led(head: bytes) -> bool:
    if head.split(b" ", 2)[1:2] != [_SWITCHED]:
        return False
    if head.index(_HEAD_END) + len(_HEAD_END) < len(head):
        raise AgentError("the guest agent sent more than its answer")
    return True
