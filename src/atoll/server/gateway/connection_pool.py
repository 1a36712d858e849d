"""Keeps connections into sandboxes for the next request."""

from __future__ import annotations

import asyncio
import socket
import time
from collections import Counter, defaultdict

from atoll.protocol import AGENT_PORT
from atoll.server.gateway.connections import Connection
from atoll.server.gateway.hosts import Target
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.sandbox_cache import CachedSandbox
from atoll.server.gateway.secure_connection import SecureConnection

_KEPT_EACH = 64
# The agent keeps an idle connection for minutes. For other servers this is unknown.
_AGENT_IDLE_S = 60.0
_OTHER_IDLE_S = 2.0
_SWEEP_S = 10.0
_AT_ONCE = 1000


class ConnectionPool:
    """Keeps all connections of the gateway.

    Attributes:
        held_bytes: Bytes held of incomplete messages on these connections.
    """

    def __init__(self) -> None:
        self.held_bytes = 0
        self._idle: defaultdict[Target, list[Connection]] = defaultdict(list)
        # count the kinds apart, so that strangers who use up one leave the other to the owner
        self._open: Counter[tuple[str, bool]] = Counter()
        self._sweeping: asyncio.TimerHandle | None = None

    async def take(self, target: Target, sandbox: CachedSandbox, *, fresh: bool) -> Connection:
        """Return a connection to the target: a kept one unless it must be ``fresh``, or a new one.

        Raises:
            Rejection: The sandbox has too many connections already.
            AtollError: The target cannot be reached.
        """
        while not fresh and (idle := self._idle.get(target)):
            connection = idle.pop()
            if connection.is_quiet() and time.monotonic() - connection.idle_since < _idle_s(target):
                connection.kept = True
                return connection
            self.drop(connection)
        if self._open[_kind(target)] >= _AT_ONCE:
            raise Rejection(
                503, "The sandbox has too many connections", target, headers=[(b"retry-after", b"1")]
            )
        self._open[_kind(target)] += 1
        try:
            sock = await sandbox.dial(target.port)
            return (
                await _secured(sock, target)
                if target.port in sandbox.https_ports
                else Connection(sock, target)
            )
        except BaseException:
            self._forget(target)
            raise

    def give(self, connection: Connection) -> None:
        """Keep a connection for the next request."""
        idle = self._idle[connection.target]
        if len(idle) >= _KEPT_EACH:
            self.drop(connection)
            return
        connection.idle_since = time.monotonic()
        idle.append(connection)
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def drop(self, connection: Connection) -> None:
        """Close a connection."""
        connection.close()
        self._forget(connection.target)

    def close(self) -> None:
        """Close all idle connections."""
        if self._sweeping is not None:
            self._sweeping.cancel()
        for idle in self._idle.values():
            for connection in idle:
                connection.close()
        self._idle.clear()

    def _forget(self, target: Target) -> None:
        kind = _kind(target)
        self._open[kind] -= 1
        if self._open[kind] <= 0:
            del self._open[kind]

    def _sweep(self) -> None:
        now = time.monotonic()
        for target, idle in list(self._idle.items()):
            old = [
                connection
                for connection in idle
                if now - connection.idle_since > _idle_s(target) or not connection.is_quiet()
            ]
            for connection in old:
                idle.remove(connection)
                self.drop(connection)
            if not idle:
                del self._idle[target]
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep) if self._idle else None


async def _secured(sock: socket.socket, target: Target) -> Connection:
    connection = SecureConnection(sock, target)
    try:
        await connection.greet()
    except BaseException as error:
        connection.close()
        if isinstance(error, OSError):
            raise Rejection(
                502, "The port does not answer in TLS, and is one of httpsPorts", target
            ) from None
        raise
    return connection


def _kind(target: Target) -> tuple[str, bool]:
    """Return the group in which a connection counts: to a sandbox's agent, or to its other ports."""
    return target.sandbox_id, target.port == AGENT_PORT


def _idle_s(target: Target) -> float:
    return _AGENT_IDLE_S if target.port == AGENT_PORT else _OTHER_IDLE_S
