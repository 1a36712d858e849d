"""The REST API: one file for each noun, each giving its routes."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.server.answers import answer
from atoll.server.parts import Parts

__all__ = ["routes"]


def routes(parts: Parts) -> list[Route]:
    """All routes of the API."""
    del parts
    return [Route("/health", _health)]


async def _health(request: Request) -> Response:
    del request
    return answer({"status": "ok"})
