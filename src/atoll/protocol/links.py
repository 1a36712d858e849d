"""Signed links to ports of sandboxes, and the record by which a home's programs find its running servers."""

from __future__ import annotations

import hashlib
import hmac

import msgspec

from atoll.errors import InvalidSpecError
from atoll.protocol.dial import AGENT_PORT
from atoll.types.internal import check_number

# The query parameter of a signed link, and the cookie that takes its place.
LINK = "atoll-link"
SERVER_RECORDS = "running-*.json"
_DIGITS_MOST = 15
_LONGEST_S = 366 * 86400.0


class ServerRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A running server, in a file ``server/running-PID.json`` of its home.

    Args:
        pid: The server's process.
        started_ticks: When that process started, in clock ticks since boot.
        scheme: ``http`` or ``https``.
        names: The part after ``PORT-ID.`` in the addresses of ports, with the server's own port. None means
            that no such name leads to the server.
    """

    pid: int
    started_ticks: int
    scheme: str
    names: str | None


class LinkRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Body of a server's ``POST /atoll/v1/sandboxes/REF/links``: the port, and how long a signature opens it."""

    port: int
    expires_in_s: float | None = None


def port_url(scheme: str, names: str, sandbox_id: str, port: int, value: str | None = None) -> str:
    """Return the address of a port.

    Args:
        scheme: ``http`` or ``https``.
        names: The part after ``PORT-ID.`` in the addresses of the server.
        sandbox_id: The sandbox.
        port: The port inside.
        value: A result of ``link_value``, which makes it a signed link.
    """
    address = f"{scheme}://{port}-{sandbox_id}.{names}/"
    return address if value is None else f"{address}?{LINK}={value}"


def check_link(port: int, expires_in_s: float | None) -> None:
    """Refuse a port that has no address, and a length that no link can have.

    Raises:
        InvalidSpecError: ``port`` is not a port, or is the agent's, or ``expires_in_s`` is not between a second
            and a year.
    """
    check_number("port", port, least=1, most=65535, whole=True, hint="give 1 to 65535")
    if port == AGENT_PORT:
        raise InvalidSpecError(f"port {port} is the agent's", hint="give the port of a server inside")
    if expires_in_s is not None:
        hint = "give seconds, a year at most"
        check_number("expires_in_s", expires_in_s, least=1, most=_LONGEST_S, hint=hint)


def record_name(pid: int) -> str:
    """Return the name of the file that records a server."""
    return SERVER_RECORDS.replace("*", str(pid))


def keyed_token(secret: bytes, *parts: str) -> str:
    """Return the token that only the holder of a secret can make for these parts."""
    # the lengths ensure that no two lists of parts give the same message
    message = "".join(f"{len(part)}:{part}" for part in parts)
    return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()


def link_value(secret: bytes, sandbox_id: str, port: int, expires_at: int) -> str:
    """Return the value that opens a port until ``expires_at``, in Unix seconds: this time and a signature."""
    return f"{expires_at}.{keyed_token(secret, 'link', sandbox_id, str(port), str(expires_at))}"


def expiry_of(value: str) -> int | None:
    """Return when the value of a link says that it ends; None if nobody can have made it."""
    digits = value.partition(".")[0]
    plain = digits.isascii() and digits.isdigit() and len(digits) <= _DIGITS_MOST
    return int(digits) if plain else None
