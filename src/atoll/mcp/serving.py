"""Runs the server on standard input and output, or over HTTP."""

from __future__ import annotations

from atoll.mcp.defaults import Defaults
from atoll.mcp.server import make_server
from atoll.mcp.web import PATH, make_app, new_token, serve
from atoll.mcp.workplace import Workplace

__all__ = ["PATH", "new_token", "serve_http", "serve_stdio"]


async def serve_stdio(defaults: Defaults) -> None:
    """Serve until standard input ends."""
    async with Workplace(defaults) as workplace:
        await make_server(workplace).run_stdio_async()


async def serve_http(defaults: Defaults, host: str, port: int, token: str) -> None:
    """Serve over HTTP until SIGTERM or SIGINT."""
    async with Workplace(defaults) as workplace:
        await serve(make_app(make_server(workplace), host, token), host, port)
