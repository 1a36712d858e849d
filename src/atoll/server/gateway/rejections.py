"""Answers for requests that reach no server inside. E2B's clients read these words."""

from __future__ import annotations

import html
from dataclasses import dataclass, field

import msgspec

from atoll.errors import (
    AtollError,
    DeadlineError,
    DelegationError,
    HostMemoryError,
    NotFoundError,
    QuotaError,
    SandboxCrashedError,
    SandboxNotFoundError,
    StateError,
    SupervisorError,
)
from atoll.server.gateway.headers import Headers
from atoll.server.gateway.hosts import Target

NOT_FOUND = "The sandbox was not found"
PORT_CLOSED = "The sandbox is running but port is not open"
NO_TRAFFIC_TOKEN = (
    "Sandbox is secured with traffic access token. Token header 'e2b-traffic-access-token' is {}"
)
UNAUTHORIZED = "unauthorized access, please provide a valid access token or method signing if supported"
_BROWSERS = (b"mozilla/", b"opera/")
_PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px system-ui;margin:15vh auto;max-width:34em;padding:0 1em}}</style>
<h1>{title}</h1><p>{message}</p></html>
"""


@dataclass
class Rejection(Exception):
    """Refuses a request at the gateway.

    Args:
        status: The answer's status.
        message: The message in the body.
        target: The port that was asked for, if known.
        names_port: Whether the body names the port too.
        headers: Further headers.
    """

    status: int
    message: str
    target: Target | None = None
    names_port: bool = False
    headers: Headers = field(default_factory=list)

    def answer(self, user_agent: bytes) -> tuple[Headers, bytes]:
        """Return the headers and body: a page for a browser, JSON for all other clients."""
        if user_agent.lower().startswith(_BROWSERS) and self.status != 401:
            title = {502: "No server answers here", 403: "Closed"}.get(self.status, "The request failed")
            kind, body = (
                b"text/html; charset=utf-8",
                _PAGE.format(title=title, message=html.escape(self.message)),
            )
            data = body.encode()
        else:
            kind, data = b"application/json", msgspec.json.encode(self._body())
        headers = [(b"content-type", kind), (b"content-length", b"%d" % len(data))]
        return [*headers, (b"access-control-allow-origin", b"*"), *self.headers], data

    def _body(self) -> dict[str, object]:
        body: dict[str, object] = {}
        if self.target is not None:
            body["sandboxId"] = self.target.sandbox_id
        body["message"] = self.message
        if self.target is not None and self.names_port:
            body["port"] = self.target.port
        body["code"] = self.status
        return body


def not_found(target: Target | None) -> Rejection:
    """Refuse: the sandbox does not exist, sleeps and may not be woken, or the client may not know of it."""
    return Rejection(502, NOT_FOUND, target)


def rejection_of(error: AtollError, target: Target) -> Rejection:
    """Return the rejection that tells the client about a dial's error."""
    match error:
        case SandboxNotFoundError() | StateError() | SandboxCrashedError():
            return not_found(target)
        case NotFoundError():
            return Rejection(502, PORT_CLOSED, target, names_port=True)
        case DelegationError():
            return Rejection(403, "The sandbox may not be used any more", target)
        case QuotaError():
            return Rejection(429, error.message, target, headers=[(b"retry-after", b"1")])
        case HostMemoryError():
            message = "The host is short of memory: try again"
            return Rejection(503, message, target, headers=[(b"retry-after", b"1")])
        case DeadlineError():
            return Rejection(504, "The sandbox did not answer in time", target)
        case SupervisorError():
            return Rejection(503, "The server is starting", target, headers=[(b"retry-after", b"1")])
        case _:
            return Rejection(502, "The sandbox could not be reached", target)
