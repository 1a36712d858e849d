"""Routes of asks: who waits for an answer, and the answers."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from atoll.errors import InvalidSpecError
from atoll.protocol import CALLER_HEADER, AskRequest, told_caller
from atoll.supervisor.api.reply import NDJSON, Report, answer, json_answer, read_body
from atoll.supervisor.lifecycle.asks import LOCAL_USER, Asks, check_answer
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks
from atoll.types import Answer
from atoll.types.internal import ASK_DEADLINE_MOST_S

_BEAT_S = 5.0
_TITLE_CHARACTERS = 200
_BODY_BYTES = 256 << 10
# As the server names a key. A program of this machine names itself otherwise, whatever it is called.
_KEY = re.compile(r"(key key-\S+) of \S+")


def ask_routes(*, inventory: Inventory, asks: Asks, tasks: Tasks) -> list[Route]:
    """Everything under ``/v1/asks``, and ``/v1/sandboxes/REF/asks``."""

    async def waiting(request: Request) -> Response:
        return json_answer(asks.page(*_scope(request, inventory)))

    async def follow(request: Request) -> Response:
        return StreamingResponse(_pages(asks, *_scope(request, inventory)), media_type=NDJSON)

    async def one(request: Request) -> Response:
        return json_answer(asks.get(request.path_params["ask"], request.query_params.get("team")))

    async def answered(request: Request) -> Response:
        ask_id = request.path_params["ask"]
        asks.get(ask_id, request.query_params.get("team"))
        given = await read_body(request, Answer)
        check_answer(given)
        by = answerer(told_caller(request.headers.get(CALLER_HEADER)))

        async def work(_: Report) -> object:
            return await asks.answer(ask_id, given, by)

        return await answer(request, tasks, work)

    async def asked(request: Request) -> Response:
        sandbox = inventory.sandbox(request.path_params["ref"])
        wanted = await read_body(request, AskRequest)
        _check_question(wanted)

        async def work(_: Report) -> object:
            return await asks.question(sandbox, wanted.title, wanted.body, wanted.deadline_s)

        return await answer(request, tasks, work, ends_with_client=True)

    return [
        Route("/v1/asks", waiting),
        Route("/v1/asks/follow", follow),
        Route("/v1/asks/{ask}", one),
        Route("/v1/asks/{ask}/answer", answered, methods=["POST"]),
        Route("/v1/sandboxes/{ref}/asks", asked, methods=["POST"]),
    ]


def answerer(caller: str | None) -> str:
    """Who answers, from what a client or the server says of the caller: a key, or whoever has this home."""
    key = _KEY.fullmatch(caller or "")
    return key[1] if key else LOCAL_USER


def _scope(request: Request, inventory: Inventory) -> tuple[str | None, str | None]:
    """The team and the sandbox that a client asks about; None is all."""
    ref = request.query_params.get("sandbox")
    sandbox_id = None if ref is None else inventory.sandbox(ref).sandbox_id
    return request.query_params.get("team"), sandbox_id


async def _pages(asks: Asks, team: str | None, sandbox_id: str | None) -> AsyncIterator[bytes]:
    """Send the asks that wait whenever they change, and empty lines meanwhile, until the client leaves."""
    sent: bytes | None = None
    with asks.listeners.listening(team, sandbox_id):
        while not asks.table.closed:
            version = asks.table.version
            page = msgspec.json.encode(asks.page(team, sandbox_id))
            yield b"\n" if page == sent else page + b"\n"
            sent = page
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_BEAT_S):
                    await asks.table.changed(version)


def _check_question(wanted: AskRequest) -> None:
    title = wanted.title
    if not title.strip() or not title.isprintable() or len(title) > _TITLE_CHARACTERS:
        raise InvalidSpecError(
            "the title is no plain line", hint=f"give one line of 1 to {_TITLE_CHARACTERS} characters"
        )
    if len(wanted.body.encode(errors="replace")) > _BODY_BYTES:
        raise InvalidSpecError("the body is over 256 KiB", hint="say it in fewer words")
    if not 1 <= wanted.deadline_s <= ASK_DEADLINE_MOST_S:
        raise InvalidSpecError(
            f"deadline_s is {wanted.deadline_s}", hint=f"give seconds from 1 to {ASK_DEADLINE_MOST_S}"
        )
