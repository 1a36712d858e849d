"""Connections into sandboxes, kept for the next request."""

from __future__ import annotations

import asyncio
import contextlib
import select
import socket
import time
from collections import Counter, defaultdict

from atoll.protocol import AGENT_PORT
from atoll.server.gateway.hosts import Target
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.sandbox_cache import CachedSandbox

_SMALL_BYTES = 64 << 10
_LARGE_BYTES = 512 << 10
_IN_TURN_BYTES = 4 << 20
_KEPT_EACH = 64
# The agent keeps an idle connection for minutes. For other servers this is unknown.
_AGENT_IDLE_S = 60.0
_OTHER_IDLE_S = 2.0
_SWEEP_S = 10.0
_AT_ONCE = 1000
_CLOSE_WAIT = 8


class Connection:
    """One connection to a port of a sandbox."""

    def __init__(self, sock: socket.socket, target: Target, *, kept: bool = False) -> None:
        self.target = target
        self.kept = kept
        self.idle_since = 0.0
        self._socket = sock
        self._loop = asyncio.get_running_loop()
        self._bytes = _SMALL_BYTES
        self._unheard = 0

    async def send(self, data: bytes) -> None:
        """Send all of ``data``.

        Raises:
            OSError: The server inside no longer reads.
        """
        await self._loop.sock_sendall(self._socket, data)

    async def receive(self, most_bytes: int = _LARGE_BYTES) -> bytes:
        """Wait for bytes, ``most_bytes`` at most. Returns ``b""`` at the end.

        Raises:
            OSError: The connection broke.
        """
        # waiting bytes are returned at once, so without a turn for others an endless sender would block
        # everybody else
        self._unheard += min(self._bytes, most_bytes)
        if self._unheard > _IN_TURN_BYTES or most_bytes < self._bytes:
            self._unheard = 0
            await asyncio.sleep(0)
        data = await self._loop.sock_recv(self._socket, min(self._bytes, most_bytes))
        if len(data) == self._bytes:
            self._bytes = _LARGE_BYTES
        return data

    def has_ended_by_itself(self) -> bool:
        """Tell whether the server inside closed the connection, after ``receive`` returned nothing.

        When a sandbox is killed or put to sleep, the supervisor shuts down this very socket, which otherwise
        looks the same.
        """
        try:
            return self._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == _CLOSE_WAIT
        except OSError:
            return False

    def is_quiet(self) -> bool:
        """Tell whether an idle connection is still good.

        A connection that a server closed, or sent data on unasked, is readable and so not good.
        """
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return not poll.poll(0)

    def abort(self) -> None:
        """End the connection from any task. A waiting ``receive`` returns."""
        with contextlib.suppress(OSError):  # it may have ended
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the socket. Idempotent."""
        self._socket.close()


class ConnectionPool:
    """Keeps all connections of the gateway.

    Attributes:
        held_bytes: Bytes held of incomplete messages on these connections.
    """

    def __init__(self) -> None:
        self.held_bytes = 0
        self._idle: defaultdict[Target, list[Connection]] = defaultdict(list)
        # counted apart, so that strangers who use up one kind leave the other to the owner
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
        except BaseException:
            self._forget(target)
            raise
        return Connection(sock, target)

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


def _kind(target: Target) -> tuple[str, bool]:
    """Return the group in which a connection counts: those to a sandbox's agent, or to its other ports."""
    return target.sandbox_id, target.port == AGENT_PORT


def _idle_s(target: Target) -> float:
    return _AGENT_IDLE_S if target.port == AGENT_PORT else _OTHER_IDLE_S
