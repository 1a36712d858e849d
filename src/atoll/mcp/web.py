"""Serves the tools over HTTP, to clients that know the token."""

from __future__ import annotations

import hmac
import secrets
from typing import Any

import uvicorn
from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

PATH = "/mcp"


def new_token() -> str:
    """Return a token of 256 random bits."""
    return secrets.token_urlsafe(32)


class TokenGuard:
    """Lets only requests pass that have the token. Programs and web pages of this machine do not have it.

    Args:
        app: The guarded application.
        token: The token.
    """

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._expected = f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or answer 401."""
        if scope["type"] == "http":
            given = [value for name, value in scope["headers"] if name == b"authorization"]
            if len(given) != 1 or not hmac.compare_digest(given[0], self._expected):
                answer = PlainTextResponse(
                    "the token is missing or wrong: send it as Authorization: Bearer TOKEN\n",
                    401,
                    {"www-authenticate": "Bearer"},
                )
                await answer(scope, receive, send)
                return
        elif scope["type"] != "lifespan":
            return
        await self._app(scope, receive, send)


def make_app(server: MCPServer[Any], host: str, token: str) -> ASGIApp:
    """Return the guarded application.

    Args:
        server: The server of the tools.
        host: The address to listen on. Requests for other host names get refused: a web page may point a name
            here.
        token: The token that clients must send.
    """
    names = [host, "127.0.0.1", "localhost", "[::1]"]
    security = TransportSecuritySettings(
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"{scheme}://{name}:*" for name in names for scheme in ("http", "https")],
    )
    return TokenGuard(
        server.streamable_http_app(streamable_http_path=PATH, transport_security=security, host=host), token
    )


async def serve(app: ASGIApp, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT."""
    config = uvicorn.Config(app, host=host, port=port, log_level="warning", timeout_graceful_shutdown=2)
    await uvicorn.Server(config).serve()
