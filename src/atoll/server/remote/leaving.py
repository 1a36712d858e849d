"""Clients that leave before they are answered."""

from __future__ import annotations

from starlette.types import Receive


async def disconnected(receive: Receive) -> None:
    """Wait until the client of a request, whose body has been read, has left."""
    while (await receive())["type"] != "http.disconnect":
        pass
