"""The HTTP interface, as clients of E2B's code interpreter know it, and some more routes."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from .contexts import Context, Contexts, TooManyError, UnknownContextError
from .languages import LANGUAGES, language_of
from .results import Line
from .surroundings import Surroundings

_MOST_BODY = 16 * 1024 * 1024
_KEEP_ALIVE_S = 10.0
# how far a client may fall behind
_MOST_LINES = 256

_Told = asyncio.Queue[Line | None]


class RefusedError(Exception):
    """A request that cannot be answered.

    Args:
        status: The status of HTTP.
        message: What is wrong.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class App:
    """Answers requests.

    Args:
        contexts: The contexts.

    Attributes:
        is_ready: Whether ``/health`` succeeds.
    """

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
        self._running: set[asyncio.Task[None]] = set()
        self.is_ready = False

    def asgi(self) -> Starlette:
        """Return the application."""
        routes = [
            ("GET", "/health", self._health),
            ("POST", "/execute", self._execute),
            ("GET", "/contexts", self._list),
            ("POST", "/contexts", self._create),
            ("DELETE", "/contexts/{id}", self._delete),
            ("POST", "/contexts/{id}/restart", self._restart),
            ("POST", "/contexts/{id}/interrupt", self._interrupt),
            ("GET", "/contexts/{id}/variables", self._variables),
        ]
        return Starlette(
            routes=[Route(path, _answered(handler), methods=[method]) for method, path, handler in routes]
        )

    async def _health(self, _: Request) -> Response:
        if not self.is_ready:
            raise RefusedError(503, "the kernels are not warm yet")
        return PlainTextResponse("OK")

    async def _execute(self, request: Request) -> Response:
        body = await _body(request)
        code, given, timeout_s = body.get("code"), body.get("env_vars") or {}, body.get("timeout_s")
        if not isinstance(code, str) or not isinstance(given, dict):
            raise RefusedError(400, "give code as text, and env_vars as an object")
        if timeout_s is not None and not isinstance(timeout_s, (int, float)):
            raise RefusedError(400, "give timeout_s as a number")
        if body.get("context_id") and body.get("language"):
            raise RefusedError(400, "Only one of context_id or language can be provided")
        if body.get("context_id"):
            context = self._contexts.get(str(body["context_id"]))
        else:
            context = await self._contexts.default(_language(body))
        only_now = {str(name): str(value) for name, value in given.items()}
        run = functools.partial(self._run, context, code, only_now, timeout_s)
        return StreamingResponse(self._lines(run), media_type="application/json")

    async def _lines(self, run: Callable[[_Told], Coroutine[Any, Any, None]]) -> AsyncIterator[bytes]:
        """Yield lines. If the client leaves, this interrupts its code."""
        told: _Told = asyncio.Queue(_MOST_LINES)
        # a task, so that it can end what it runs when the client has left
        running = asyncio.create_task(run(told))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            while True:
                try:
                    line = await asyncio.wait_for(told.get(), _KEEP_ALIVE_S)
                except TimeoutError:
                    if running.done():
                        running.result()
                    # so that nothing between here and the client takes a long silence for an end
                    line = {"type": "keep_alive"}
                if line is None:
                    break
                yield json.dumps(line).encode() + b"\n"
            yield b'{"type":"end_of_execution"}\n'
        finally:
            running.cancel()

    async def _run(
        self, context: Context, code: str, only_now: dict[str, str], timeout_s: float | None, told: _Told
    ) -> None:
        """Run code and send the client its lines. A cancellation or the timeout interrupts the code."""
        try:
            async with asyncio.timeout(timeout_s):
                around = await asyncio.to_thread(Surroundings.read)
                async with contextlib.aclosing(
                    self._contexts.execute(context, code, around, only_now)
                ) as lines:
                    async for line in lines:
                        await told.put(line)
        except TimeoutError:
            await told.put({"type": "timed_out", "loss": context.loss()})
        await told.put(None)

    async def _list(self, _: Request) -> Response:
        return JSONResponse([context.shown() for context in self._contexts.all()])

    async def _create(self, request: Request) -> Response:
        body = await _body(request)
        cwd = body.get("cwd")
        if cwd is not None and not isinstance(cwd, str):
            raise RefusedError(400, "cwd is not text")
        context = await self._contexts.create(_language(body), cwd)
        return JSONResponse(context.shown())

    async def _delete(self, request: Request) -> Response:
        await self._contexts.delete(request.path_params["id"])
        return Response(status_code=204)

    async def _restart(self, request: Request) -> Response:
        await self._contexts.restart(request.path_params["id"])
        return JSONResponse(self._contexts.get(request.path_params["id"]).shown())

    async def _interrupt(self, request: Request) -> Response:
        await self._contexts.get(request.path_params["id"]).kernel.interrupt()
        return Response(status_code=204)

    async def _variables(self, request: Request) -> Response:
        context = self._contexts.get(request.path_params["id"])
        if context.language.name != "python":
            raise RefusedError(400, "only Python lists its variables")
        return Response(await self._contexts.variables(context), media_type="application/json")


def _language(body: dict[str, Any]) -> Any:
    found = language_of(body.get("language"))
    if found is None:
        raise RefusedError(400, f"the language is not known; there are {', '.join(LANGUAGES)}")
    return found


async def _body(request: Request) -> dict[str, Any]:
    read = bytearray()
    async for piece in request.stream():
        read += piece
        if len(read) > _MOST_BODY:
            raise RefusedError(413, "the request is too large")
    try:
        body = json.loads(bytes(read) or b"{}")
    except ValueError:
        raise RefusedError(400, "the request is not JSON") from None
    if not isinstance(body, dict):
        raise RefusedError(400, "the request is not a JSON object")
    return body


def _answered(handler: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except RefusedError as error:
            return PlainTextResponse(error.message, error.status)
        except UnknownContextError as error:
            return PlainTextResponse(f"Context {error} not found", 404)
        except TooManyError:
            return PlainTextResponse("there are too many contexts; delete one", 429)
        except OSError as error:
            return PlainTextResponse(str(error), 400)

    return answer
