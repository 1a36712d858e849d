from typing import Any

import anyio
import httpx
import pytest

from atoll.mcp.web import TokenGuard

TOKEN = "a-token"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    del scope, receive
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"inside"})


def status(headers: list[tuple[str, str]]) -> int:
    async def ask() -> int:
        transport = httpx.ASGITransport(app=TokenGuard(_app, TOKEN))
        async with httpx.AsyncClient(transport=transport, base_url="http://here.test") as client:
            return (await client.get("/mcp", headers=headers)).status_code

    return anyio.run(ask)


def test_the_right_token_opens() -> None:
    assert status([("authorization", f"Bearer {TOKEN}")]) == 200


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("authorization", "Bearer wrong")],
        [("authorization", TOKEN)],
        [("authorization", f"Basic {TOKEN}")],
        [("authorization", f"Bearer {TOKEN}"), ("authorization", f"Bearer {TOKEN}")],
        [("x-authorization", f"Bearer {TOKEN}")],
    ],
)
def test_anything_else_is_refused(headers: list[tuple[str, str]]) -> None:
    assert status(headers) == 401
