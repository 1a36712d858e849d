"""Signed links: an address that opens a port to a browser for a time, and the cookie that replaces it.

Neither the link nor the cookie reaches the server inside.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from atoll.protocol import LINK, expiry_of
from atoll.server.gateway.headers import Headers
from atoll.server.gateway.rejections import Rejection
from atoll.server.gateway.request import GatewayRequest
from atoll.server.tokens import Tokens

_NAME = LINK.encode()
_NAMES = (_NAME, b"__Host-" + _NAME)
LINK_ENDED = "The link has ended, or is not for this port"
_READING = frozenset({"GET", "HEAD"})
# After one slash they would make the browser look for another host.
_SLASHES = (b"/", b"\\")


class LinkCheck:
    """Checks links and their cookies.

    Args:
        tokens: Made the links.
    """

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def checked(self, request: GatewayRequest, now: float, *, is_socket: bool = False) -> GatewayRequest:
        """Return a request without its link and cookie, and open if either of them opens the port.

        Args:
            request: The request as the client sent it.
            now: Unix seconds.
            is_socket: Whether it opens a WebSocket, which no answer can redirect.

        Raises:
            Rejection: The link does not open the port (403), or can be exchanged for a cookie (303).
        """
        if request.is_for_agent:
            return request
        query, links = _parted(request.query)
        if links:
            self._check(links, request, now)
        bare, cookies = _without_cookies(request)
        bare = replace(bare, query=query)
        if links and request.method in _READING and not is_socket:
            raise _exchange(bare, links[0].decode("latin-1"), now)
        if _comes_from_elsewhere(request):
            cookies = []
        # Pages of other sandboxes may have set many for all of the domain.
        opening = [*links, *(value for value in cookies if self._opens(value, request, now))]
        ends = [ends_at for value in opening if (ends_at := expiry_of(value.decode("latin-1"))) is not None]
        return replace(bare, opened_until=max(ends, default=None))

    def _check(self, links: list[bytes], request: GatewayRequest, now: float) -> None:
        if len(links) > 1 or not self._opens(links[0], request, now):
            raise Rejection(403, LINK_ENDED, request.target)

    def _opens(self, value: bytes, request: GatewayRequest, now: float) -> bool:
        target = request.target
        return self._tokens.opens(value.decode("latin-1"), target.sandbox_id, target.port, now)


def _exchange(request: GatewayRequest, value: str, now: float) -> Rejection:
    """Return the answer that gives the browser a cookie and sends it to the same address without the link."""
    if request.path[1:2] in _SLASHES:
        raise Rejection(400, "Invalid request", request.target)
    ends_at = expiry_of(value) or 0
    secure = "; Secure" if request.scheme == "https" else ""
    name = _cookie_name(request).decode()
    cookie = f"{name}={value}; Path=/; Max-Age={max(1, int(ends_at - now))}; HttpOnly; SameSite=Lax{secure}"
    headers = [
        (b"location", request.line_target),
        (b"set-cookie", cookie.encode("latin-1")),
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
    ]
    return Rejection(303, "The link is open", request.target, headers=headers)


def _comes_from_elsewhere(request: GatewayRequest) -> bool:
    """Tell whether a page of another host made this request.

    Other sandboxes count to browsers as the same site, so a browser sends the cookie for their pages too.
    """
    origin = request.named.get(b"origin")
    if origin is not None:
        return origin.partition(b"://")[2].lower() != request.host.lower()
    elsewhere = request.named.get(b"sec-fetch-site") in (b"same-site", b"cross-site")
    return elsewhere and request.named.get(b"sec-fetch-mode") != b"navigate"


def _cookie_name(request: GatewayRequest) -> bytes:
    """Return the name of the valid cookie. In https no other host of the domain can set this name."""
    return _NAMES[request.scheme == "https"]


def _without_cookies(request: GatewayRequest) -> tuple[GatewayRequest, list[bytes]]:
    """Return a request without the cookies of links, and the values of the valid ones."""
    headers: Headers = []
    found: list[bytes] = []
    for name, value in request.headers:
        if name == b"cookie" and _NAME in value:
            parts = value.split(b";")
            found += _values(parts, _cookie_name(request))
            value = b";".join(part for part in parts if _named(part) not in _NAMES).strip()
            if not value:
                continue
        headers.append((name, value))
    return replace(request, headers=headers), found


def _parted(query: bytes) -> tuple[bytes, list[bytes]]:
    """Return a query without links, and the links' values."""
    if _NAME not in query:
        return query, []
    parts = query.split(b"&")
    return b"&".join(part for part in parts if _named(part) != _NAME).strip(), list(_values(parts, _NAME))


def _named(part: bytes) -> bytes:
    return part.strip().partition(b"=")[0].strip()


def _values(parts: list[bytes], name: bytes) -> Iterator[bytes]:
    yield from (part.strip().partition(b"=")[2] for part in parts if _named(part) == name)
