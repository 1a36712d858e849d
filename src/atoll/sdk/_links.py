"""Addresses of ports at the running server of a home, with and without a signature."""

from __future__ import annotations

import contextlib
import math
import time
from pathlib import Path

import msgspec

from atoll.errors import StateError
from atoll.host import Home, process_alive
from atoll.protocol import SERVER_RECORDS, ServerRecord, link_value, port_url
from atoll.types.internal import from_json


def url_of(home: Home, sandbox_id: str, port: int, expires_in_s: float | None) -> str:
    """Return the address of a port. With ``expires_in_s`` it is a signed link.

    Raises:
        StateError: No server runs over the home, or no name leads to its ports.
    """
    directory = home.path / "server"
    server = _server(directory)
    value = None
    if expires_in_s is not None:
        expires_at = math.ceil(time.time() + expires_in_s)
        value = link_value(_secret(directory), sandbox_id, port, expires_at)
    return port_url(server.scheme, str(server.names), sandbox_id, port, value)


def _server(directory: Path) -> ServerRecord:
    """Return the server to use: one with a domain if there is one, since other machines reach that too."""
    running = [record for record in _records(directory) if process_alive(record.pid, record.started_ticks)]
    named = [record for record in running if record.names is not None]
    if named:
        return min(
            named, key=lambda record: (str(record.names).startswith("localhost:"), -record.started_ticks)
        )
    if running:
        raise StateError(
            "no name leads to the ports of sandboxes: the server listens for other machines and has no domain",
            hint="start it with `atoll serve --domain`, or use `atoll port`",
        )
    raise StateError(
        "no server runs that gives ports an address",
        hint="start one with `atoll serve`, or use `atoll port` on this machine",
    )


def _records(directory: Path) -> list[ServerRecord]:
    found = []
    for path in directory.glob(SERVER_RECORDS):
        with contextlib.suppress(OSError, msgspec.MsgspecError):  # its server has just ended
            found.append(from_json(path.read_bytes(), ServerRecord))
    return found


def _secret(directory: Path) -> bytes:
    try:
        return (directory / "secret").read_bytes()
    except OSError as error:
        raise StateError(
            f"the server's secret cannot be read: {error.strerror}",
            hint="sign links as the user who runs `atoll serve`",
        ) from None
