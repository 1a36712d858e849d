"""Says why a port of this machine cannot be listened on."""

from __future__ import annotations

import errno
from pathlib import Path

from atoll.errors import InvalidSpecError

_FIRST_OPEN = Path("/proc/sys/net/ipv4/ip_unprivileged_port_start")
_USUAL_FIRST_OPEN = 1024


def cannot_listen(port: int, error: OSError, first_open: int | None = None) -> InvalidSpecError:
    """Return the error for a local port that could not be had.

    Args:
        port: The port.
        error: What the system said.
        first_open: The first port that every user may have; None asks the system.
    """
    if error.errno == errno.EACCES:
        first_open = _first_open() if first_open is None else first_open
        return InvalidSpecError(
            f"port {port} of this machine needs root: ports below {first_open} do",
            hint=f"give another local port, such as {_above(port, first_open)}",
        )
    if error.errno == errno.EADDRINUSE:
        other = port + 1 if port < 65535 else 8080
        return InvalidSpecError(
            f"port {port} of this machine is taken: another program listens on it",
            hint=f"give another local port, such as {other}, or 0 for a free one",
        )
    return InvalidSpecError(
        f"port {port} of this machine cannot be used: {error.strerror or error}",
        hint="give another local port, or 0 for a free one",
    )


def _first_open() -> int:
    try:
        return int(_FIRST_OPEN.read_text())
    except (OSError, ValueError):
        return _USUAL_FIRST_OPEN


def _above(port: int, first_open: int) -> int:
    """Return a port that every user may have, and that reminds of the one that was wanted."""
    return next((other for other in (port + 8000, 8080) if first_open <= other <= 65535), 0)
