"""Serves the API on its unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from atoll.supervisor.api.requests import UNREAD
from atoll.supervisor.dialing.socket import listen

_LEAVE_S = 5


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The supervisor's entry handles signals.
        yield


class _Protocol(H11Protocol):
    """Notifies a request when its client cannot have read its answer."""

    def eof_received(self) -> None:
        # Check this now: any answer between this and the connection's end is discarded.
        self._tell(is_read=self.cycle is None or self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        # The kernel ends a unix connection with an error if its peer closed it without reading everything.
        self._tell(is_read=exc is None and (self.cycle is None or self.cycle.response_complete))
        super().connection_lost(exc)

    def _tell(self, *, is_read: bool) -> None:
        if self.cycle is None or is_read:
            return
        unread = self.cycle.scope.get("state", {}).get(UNREAD)
        if unread is not None:
            unread()


class ApiServer:
    """Runs the HTTP server.

    Args:
        path: The socket to listen on, accessible only to this user.
        app: The application to serve.
    """

    def __init__(self, path: Path, app: ASGIApp) -> None:
        self._path = path
        config = uvicorn.Config(
            app,
            http=_Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            timeout_keep_alive=600,
            timeout_graceful_shutdown=_LEAVE_S,
        )
        self._server = _Server(config)
        self._serving: asyncio.Task[None] | None = None
        self._listener: socket.socket | None = None

    @property
    def requests(self) -> int:
        """How many requests are being answered."""
        return len(self._server.server_state.tasks)

    @property
    def connections(self) -> int:
        """How many connections are open."""
        return len(self._server.server_state.connections)

    def start(self) -> None:
        """Start to listen. A socket that a dead supervisor left is replaced."""
        self._listener = listen(self._path, socket.SOCK_STREAM)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def aclose(self) -> None:
        """Answer the requests in progress, then stop listening."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        if self._listener is not None:
            self._listener.close()
        self._path.unlink(missing_ok=True)
