"""The dial socket: a request and an answer, each a single message on a SOCK_SEQPACKET unix socket.

A successful answer carries one connected stream socket as SCM_RIGHTS. From then on client and guest talk
directly. A client may send another request on the same connection.
"""

from __future__ import annotations

import msgspec

from atoll.errors import InvalidSpecError
from atoll.protocol.error_bodies import ErrorBody
from atoll.types import Recovery
from atoll.types.internal import from_json

DIAL_LIMIT_BYTES = 16384
# The port on which the agent listens inside. E2B's clients know it.
AGENT_PORT = 49983
# The same over a server: a WebSocket with this subprotocol, see `server/remote/dial.py`.
TUNNEL_PROTOCOL = "atoll.dial.v1"
TUNNEL_END = "end"


class DialRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Connect to ``port`` (1..65535) of a sandbox, by id or name. This wakes a sleeping sandbox first.

    ``within_s`` bounds how long the guest, once it runs, may take to accept the connection. None means the
    supervisor's own bound.
    """

    sandbox: str
    port: int
    within_s: float | None = None


class DialAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """An answer. ``error`` is None if the message carries a descriptor.

    ``recovered`` is set if the sandbox had crashed and this request, or a concurrent one, made it continue.
    """

    sandbox_id: str | None = None
    recovered: Recovery | None = None
    error: ErrorBody | None = None


def encode(message: DialRequest | DialAnswer) -> bytes:
    """Return the message as one packet."""
    return msgspec.json.encode(message)


def decode_request(packet: bytes) -> DialRequest:
    """Read a client's packet.

    Raises:
        InvalidSpecError: It is not a request, or its port is out of range.
    """
    try:
        request = from_json(packet, DialRequest)
    except msgspec.DecodeError as error:
        raise InvalidSpecError(f"not a dial request: {error}") from None
    if not 1 <= request.port <= 65535:
        raise InvalidSpecError(f"port {request.port} is not between 1 and 65535")
    if request.within_s is not None and not request.within_s > 0:
        raise InvalidSpecError(f"within_s is {request.within_s:g}", hint="give more than 0 seconds")
    return request


def decode_answer(packet: bytes) -> DialAnswer:
    """Read the supervisor's packet.

    Raises:
        InvalidSpecError: It is not an answer.
    """
    try:
        return from_json(packet, DialAnswer)
    except msgspec.DecodeError as error:
        raise InvalidSpecError(f"not a dial answer: {error}") from None
