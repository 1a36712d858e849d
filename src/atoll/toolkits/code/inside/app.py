"""The HTTP interface, as clients of E2B's code interpreter know it, and some routes more."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from .contexts import Context, Contexts, TooManyError, UnknownContextError
from .languages import LANGUAGES, language_of

_MOST_BODY = 16 * 1024 * 1024
_ENVIRONMENT = "/run/atoll/environment.json"
_KEEP_ALIVE_S = 10.0


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
        is_ready: Whether ``/health`` says that all is well.
    """

    def __init__(self, contexts: Contexts) -> None:
        self._contexts = contexts
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
        code, given = body.get("code"), body.get("env_vars") or {}
        if not isinstance(code, str) or not isinstance(given, dict):
            raise RefusedError(400, "give code as text, and env_vars as an object")
        if body.get("context_id") and body.get("language"):
            raise RefusedError(400, "Only one of context_id or language can be provided")
        if body.get("context_id"):
            context = self._contexts.get(str(body["context_id"]))
        else:
            context = await self._contexts.default(_language(body))
        everywhere = await asyncio.to_thread(_variables_of_sandbox)
        only_now = {str(name): str(value) for name, value in given.items()}
        lines = self._lines(context, code, everywhere, only_now)
        return StreamingResponse(lines, media_type="application/json")

    async def _lines(
        self, context: Context, code: str, everywhere: dict[str, str], only_now: dict[str, str]
    ) -> AsyncIterator[bytes]:
        """Yield lines. A client that leaves has what it ran interrupted."""
        done = False
        lines = self._contexts.execute(context, code, everywhere, only_now)
        waiting: asyncio.Future[Any] | None = None
        try:
            while True:
                waiting = asyncio.ensure_future(anext(lines, None))
                while not (await asyncio.wait([waiting], timeout=_KEEP_ALIVE_S))[0]:
                    # so that nothing between here and the client takes a long silence for an end
                    yield b'{"type":"keep_alive"}\n'
                line = waiting.result()
                if line is None:
                    break
                yield json.dumps(line).encode() + b"\n"
            done = True
            yield b'{"type":"end_of_execution"}\n'
        finally:
            if not done:
                await context.kernel.interrupt()
                if waiting is not None:
                    await asyncio.shield(_drained(lines, waiting))

    async def _list(self, _: Request) -> Response:
        return JSONResponse([context.shown() for context in self._contexts.all()])

    async def _create(self, request: Request) -> Response:
        body = await _body(request)
        cwd = body.get("cwd")
        if cwd is not None and not isinstance(cwd, str):
            raise RefusedError(400, "cwd is no text")
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
            raise RefusedError(400, "variables are told for Python only")
        return Response(await self._contexts.variables(context), media_type="application/json")


async def _drained(lines: AsyncIterator[Any], waiting: asyncio.Future[Any]) -> None:
    """Read an interrupted execution to its end, so that the next one finds an idle kernel."""
    line = await waiting
    while line is not None:
        line = await anext(lines, None)


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
        raise RefusedError(400, "the request is no JSON") from None
    if not isinstance(body, dict):
        raise RefusedError(400, "the request is no JSON object")
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


def _variables_of_sandbox() -> dict[str, str]:
    """Read the variables that the sandbox was made with. The kernels have those of the template's build."""
    try:
        found = json.loads(Path(_ENVIRONMENT).read_bytes())
    except (OSError, ValueError):
        return {}
    return {str(name): str(value) for name, value in found.items()} if isinstance(found, dict) else {}
