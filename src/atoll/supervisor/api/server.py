"""Serving the API on its unix socket."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from atoll.supervisor.dial import listen

_LEAVE_S = 5


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        # The supervisor's entry handles signals.
        yield


class ApiServer:
    """The HTTP server.

    Args:
        path: Where it listens, for this user alone.
        app: What it serves.
    """

    def __init__(self, path: Path, app: ASGIApp) -> None:
        self._path = path
        config = uvicorn.Config(
            app,
            http="h11",
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

    def start(self) -> None:
        """Begin to listen; a socket that a dead supervisor left is replaced."""
        self._listener = listen(self._path, socket.SOCK_STREAM)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listener]))

    async def aclose(self) -> None:
        """Answer what was asked, then stop listening."""
        self._server.should_exit = True
        if self._serving is not None:
            await self._serving
        if self._listener is not None:
            self._listener.close()
        self._path.unlink(missing_ok=True)
