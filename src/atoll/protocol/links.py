"""Signed links to ports of sandboxes, and the record by which a home's programs find its running servers."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

# The query parameter of a signed link, and the cookie that takes its place.
LINK = "atoll-link"
SERVER_RECORDS = "running-*.json"
_DIGITS_MOST = 15


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running server, in a file ``server/running-PID.json`` of its home.

    Args:
        pid: The server's process.
        started_ticks: When that process started, in clock ticks since boot.
        scheme: ``http`` or ``https``.
        names: What follows ``PORT-ID.`` in the addresses of ports, with the server's own port. None means that
            no such name leads to the server.
    """

    pid: int
    started_ticks: int
    scheme: str
    names: str | None


def record_name(pid: int) -> str:
    """Return the name of the file that records a server."""
    return SERVER_RECORDS.replace("*", str(pid))


def keyed_token(secret: bytes, *parts: str) -> str:
    """Return the token that only the holder of a secret can make for these parts."""
    # the lengths ensure that no two lists of parts give the same message
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()


def link_value(secret: bytes, sandbox_id: str, port: int, expires_at: int) -> str:
    """Return what opens a port until ``expires_at``, in Unix seconds: its end and a signature."""
    return f"{expires_at}.{keyed_token(secret, 'link', sandbox_id, str(port), str(expires_at))}"


def expiry_of(value: str) -> int | None:
    """Return when the value of a link says that it ends; None if nobody can have made it."""
    digits = value.partition(".")[0]
    plain = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST
    return int(digits) if plain else None
