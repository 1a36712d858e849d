"""Decides who may ask for what: the agent's paths by token or signature, other ports by the traffic token."""

from __future__ import annotations

from dataclasses import replace

from atoll.server.gateway.asked import Asked
from atoll.server.gateway.known import Known
from atoll.server.gateway.refusals import NO_TRAFFIC_TOKEN, UNAUTHORIZED, Rejection
from atoll.server.gateway.signatures import BadSignatureError, Operation, checked
from atoll.server.tokens import same

_PROCEDURES = ("process.Process", "filesystem.Filesystem")
_OPEN_PATHS = frozenset({b"/health"})
_FILES = b"/files"
_GUARDED_PATHS = frozenset({b"/metrics", b"/envs", b"/files/compose"})
_PREFIXES = tuple(f"/{service}/".encode() for service in _PROCEDURES)
_OPERATIONS: dict[str, Operation] = {"GET": "read", "HEAD": "read", "POST": "write"}
_WRONG_TOKEN = "access token present in header but does not match"


def admitted(asked: Asked, known: Known, now: float) -> Asked:
    """Return the request as the sandbox may see it.

    Raises:
        Rejection: The request has no right to what it asks for.
    """
    if not asked.is_for_agent:
        _check_traffic(asked, known)
        return asked.masked(known.mask_host)
    if not _is_public(asked.path):
        # this covers the supervisor's own paths too: no spelling of them is on the list
        raise Rejection(404, "404 page not found")
    if known.access_token is None or asked.path in _OPEN_PATHS or asked.method == "OPTIONS":
        return asked
    if asked.path == _FILES and asked.method in _OPERATIONS:
        return _with_file_access(asked, known.access_token, now)
    if not _has_token(asked, known.access_token):
        raise Rejection(401, UNAUTHORIZED)
    return asked


def _is_public(path: bytes) -> bool:
    if path in _OPEN_PATHS or path in _GUARDED_PATHS or path == _FILES:
        return True
    return path.startswith(_PREFIXES) and path.rpartition(b"/")[2].isalnum() and path.count(b"/") == 2


def _has_token(asked: Asked, token: str) -> bool:
    return same(asked.named.get(b"x-access-token", b"").decode("latin-1"), token)


def _with_file_access(asked: Asked, token: str, now: float) -> Asked:
    if asked.named.get(b"x-access-token"):
        if not _has_token(asked, token):
            raise Rejection(401, _WRONG_TOKEN)
        return asked
    try:
        query = checked(asked.query, _OPERATIONS[asked.method], token, now)
    except BadSignatureError as error:
        raise Rejection(401, str(error)) from None
    # The signature covers the user, so no header may name another one.
    headers = [pair for pair in asked.headers if pair[0] != b"authorization"]
    return replace(asked, query=query, headers=headers)


def _check_traffic(asked: Asked, known: Known) -> None:
    if known.traffic_token is None:
        return
    given = asked.named.get(b"e2b-traffic-access-token")
    if not given:
        raise Rejection(403, NO_TRAFFIC_TOKEN.format("missing"), asked.target)
    if not same(given.decode("latin-1"), known.traffic_token):
        raise Rejection(403, NO_TRAFFIC_TOKEN.format("invalid"), asked.target)
