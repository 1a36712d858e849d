"""The HTTP server under the application: granian, in this process and on this event loop."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path
from typing import Any

from granian import _granian
from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.server.embed import Server
from starlette.types import ASGIApp

from atoll.errors import HostError
from atoll.server.settings import Settings

HEAD_BYTES = 64 << 10
_CONNECTIONS = 20_000
_BACKLOG = 1024
_STREAMS = 128
_STOP_S = 10


class Listener(Server):
    """Serves an application on a socket that is already bound.

    So the port is known, and the process may already have given up the rights to bind it.
    """

    def __init__(self, app: ASGIApp, settings: Settings, sock: socket.socket) -> None:
        head_ms = round(settings.head_timeout_s * 1000)
        super().__init__(
            app,
            settings.host,
            sock.getsockname()[1],
            interface=Interfaces.ASGINL,
            http=HTTPModes.auto,
            backlog=_BACKLOG,
            backpressure=_CONNECTIONS,
            http1_settings=HTTP1Settings(header_read_timeout=head_ms, max_buffer_size=HEAD_BYTES),
            http2_settings=HTTP2Settings(
                max_concurrent_streams=_STREAMS,
                max_headers_size=HEAD_BYTES,
                keep_alive_interval=head_ms,
                initial_stream_window_size=1 << 20,
                initial_connection_window_size=4 << 20,
            ),
            log_enabled=False,
            ssl_cert=_path(settings.tls_cert),
            ssl_key=_path(settings.tls_key),
            ssl_protocol_min=SSLProtocols.tls12,
        )
        self._socket = sock
        self.workers_kill_timeout = _STOP_S

    async def serve(self, *arguments: Any) -> None:
        """Serve until ``stop``, then wait for running requests.

        The wait is short, because clients need never end their requests.
        """
        with contextlib.suppress(TimeoutError):
            await super().serve(*arguments)

    def _init_shared_socket(self) -> None:
        # granian closes the descriptor that it gets
        holder: Any = _granian.SocketHolder
        self._ssp, self._shd = None, holder(os.dup(self._socket.fileno()), False, _BACKLOG)


def bound(settings: Settings) -> socket.socket:
    """Return a listening socket, bound to the settings' address.

    Raises:
        HostError: The address is in use, does not belong to this host, or is not allowed.
    """
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((settings.host, settings.port))
        sock.listen(_BACKLOG)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise HostError(
            f"cannot listen on {settings.host} port {settings.port}: {error.strerror}",
            hint="choose another address with --listen",
        ) from None
    return sock


def _path(path: Path | None) -> Path | None:
    return path.resolve() if path is not None else None
