"""A request as the gateway sees it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from starlette.types import Scope

from atoll.protocol import AGENT_PORT
from atoll.server.gateway.headers import Headers, forwarded, head, to_guest
from atoll.server.gateway.hosts import Target

_OF_THE_AGENT = frozenset({b"x-access-token", b"e2b-sandbox-id", b"e2b-template-id"})


@dataclass(frozen=True)
class GatewayRequest:
    """A request for a port of a sandbox.

    Args:
        target: The port and the sandbox.
        method: ``GET`` or another method.
        path: The path as received, with percent-encoding.
        query: The query, after the ``?``.
        headers: All headers, with names in lower case.
        host: The ``Host`` that the server inside sees.
        peer: The client's address.
        scheme: The scheme that the client used.
        is_h2: Whether the request came over HTTP/2, where a body needs no header.
        patience_s: How many seconds the body may be silent.
        named: The last value of each header.
        template: The sandbox's template, for its agent to tell programs.
        opened_until: The end, in Unix seconds, of the signed link that opens the port; None without one.
    """

    target: Target
    method: str
    path: bytes
    query: bytes
    headers: Headers
    host: bytes
    peer: str
    scheme: str
    is_h2: bool
    patience_s: float
    named: dict[bytes, bytes] = field(repr=False)
    template: str = ""
    opened_until: int | None = None

    @classmethod
    def of(cls, scope: Scope, target: Target, named: dict[bytes, bytes], patience_s: float) -> GatewayRequest:
        """Return the request of an ASGI scope, HTTP or WebSocket."""
        client = scope.get("client")
        return cls(
            target=target,
            method=scope.get("method", "GET"),
            path=scope["raw_path"],
            query=scope["query_string"],
            headers=scope["headers"],
            host=named.get(b"host", b""),
            peer=client[0] if client else "",
            scheme={"ws": "http", "wss": "https"}.get(scope["scheme"]) or scope["scheme"],
            is_h2=scope["http_version"] == "2",
            patience_s=patience_s,
            named=named,
        )

    @property
    def is_for_agent(self) -> bool:
        """Tell whether the request is for the guest agent, not for a server of the user's."""
        return self.target.port == AGENT_PORT

    @property
    def line_target(self) -> bytes:
        """Return path and query as they stand in a request line."""
        path = self.path or b"/"
        return path + b"?" + self.query if self.query else path

    def masked(self, mask: str | None) -> GatewayRequest:
        """Return the same request with the host that the owner wants servers inside to see."""
        if mask is None or self.is_for_agent:
            return self
        return replace(
            self, host=mask.replace("${PORT}", str(self.target.port)).encode("latin-1", errors="replace")
        )

    def for_guest(self) -> Headers:
        """Return the headers that the server inside sees, except the body's framing."""
        without = _OF_THE_AGENT if self.is_for_agent else frozenset[bytes]()
        told = forwarded(self.peer, self.scheme, self.named.get(b"host", b""))
        if self.is_for_agent:
            told += [
                (b"e2b-sandbox-id", self.target.sandbox_id.encode()),
                (b"e2b-template-id", self.template.encode()),
            ]
        return [(b"host", self.host), *to_guest(self.headers, without=without), *told]

    def head(self, framing: Headers) -> bytes:
        """Return the bytes of the request's head.

        Raises:
            ValueError: A part could start another field.
        """
        return head(self.method, self.line_target, [*self.for_guest(), *framing])
