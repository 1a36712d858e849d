"""Authorizes requests: the agent's paths by token or signature, others by the traffic token or a link."""

from __future__ import annotations

from dataclasses import replace

from atoll.server.gateway.rejections import NO_TRAFFIC_TOKEN, UNAUTHORIZED, Rejection
from atoll.server.gateway.request import GatewayRequest
from atoll.server.gateway.sandbox_cache import CachedSandbox
from atoll.server.gateway.signatures import BadSignatureError, Operation, checked
from atoll.server.tokens import same

_PROCEDURES = ("process.Process", "filesystem.Filesystem")
_OPEN_PATHS = frozenset({b"/health"})
_FILES = b"/files"
_GUARDED_PATHS = frozenset({b"/metrics", b"/envs", b"/files/compose"})
_PREFIXES = tuple(f"/{service}/".encode() for service in _PROCEDURES)
_OPERATIONS: dict[str, Operation] = {"GET": "read", "HEAD": "read", "POST": "write"}
_WRONG_TOKEN = "access token present in header but does not match"


def authorized(request: GatewayRequest, sandbox: CachedSandbox, now: float) -> GatewayRequest:
    """Return the request as the sandbox may see it.

    Raises:
        Rejection: The request lacks the right to that path.
    """
    if not request.is_for_agent:
        _check_traffic(request, sandbox)
        return request.masked(sandbox.mask_host)
    if not _is_public(request.path):
        # this covers the supervisor's own paths too: no spelling of them is on the list
        raise Rejection(404, "404 page not found")
    if sandbox.access_token is None or request.path in _OPEN_PATHS or request.method == "OPTIONS":
        return request
    if request.path == _FILES and request.method in _OPERATIONS:
        return _with_file_access(request, sandbox.access_token, now)
    if not _has_token(request, sandbox.access_token):
        raise Rejection(401, UNAUTHORIZED)
    return request


def _is_public(path: bytes) -> bool:
    if path in _OPEN_PATHS or path in _GUARDED_PATHS or path == _FILES:
        return True
    return path.startswith(_PREFIXES) and path.rpartition(b"/")[2].isalnum() and path.count(b"/") == 2


def _has_token(request: GatewayRequest, token: str) -> bool:
    return same(request.named.get(b"x-access-token", b"").decode("latin-1"), token)


def _with_file_access(request: GatewayRequest, token: str, now: float) -> GatewayRequest:
    if request.named.get(b"x-access-token"):
        if not _has_token(request, token):
            raise Rejection(401, _WRONG_TOKEN)
        return request
    try:
        query = checked(request.query, _OPERATIONS[request.method], token, now)
    except BadSignatureError as error:
        raise Rejection(401, str(error)) from None
    # The signature covers the user, so no header may name another one.
    headers = [pair for pair in request.headers if pair[0] != b"authorization"]
    return replace(request, query=query, headers=headers)


def _check_traffic(request: GatewayRequest, sandbox: CachedSandbox) -> None:
    if sandbox.traffic_token is None or request.opened_until is not None:
        return
    given = request.named.get(b"e2b-traffic-access-token")
    if not given:
        raise Rejection(403, NO_TRAFFIC_TOKEN.format("missing"), request.target)
    if not same(given.decode("latin-1"), sandbox.traffic_token):
        raise Rejection(403, NO_TRAFFIC_TOKEN.format("invalid"), request.target)
