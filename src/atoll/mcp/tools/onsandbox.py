"""The tools that act on one sandbox: the tools of ``atoll.tools``, each with the argument ``sandbox``."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
from mcp.server.mcpserver import Context, Image

from atoll.errors import AtollError
from atoll.mcp.tools.adding import Tools, reporter
from atoll.mcp.tools.arguments import Which
from atoll.mcp.workplace import Workplace
from atoll.tools import TOOL_CLASSES, Offer, Seen, ToolResult

_TELL_EVERY_S = 2.0
_LAST_CHARACTERS = 200


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    for kind in TOOL_CLASSES:
        for offer in kind.OFFERS:
            function = with_sandbox(kind, offer, workplace)
            tools.add(function, title=offer.title, reads=offer.reads, destroys=offer.destroys)


def with_sandbox(kind: type[Any], offer: Offer, workplace: Workplace) -> Callable[..., Awaitable[Any]]:
    """Return a tool as a function that first finds the sandbox, and reports progress to the client."""
    method = getattr(kind, offer.name)

    async def call(ctx: Context[Any, Any], sandbox: Which = None, **arguments: Any) -> Any:
        busy_s = arguments.get("timeout_s", arguments.get("wait_s", 0.0))
        used = await workplace.sandbox(sandbox, busy_s=busy_s, on_progress=reporter(ctx))
        seen = Seen(2 * _LAST_CHARACTERS)
        room = kind(used, seen.add) if "on_output" in inspect.signature(kind).parameters else kind(used)
        return blocks_of(await told_meanwhile(method(room, **arguments), seen, ctx))

    own = list(inspect.signature(method, eval_str=True).parameters.values())[1:]
    shared = [
        each
        for each in inspect.signature(call, eval_str=True).parameters.values()
        if each.kind != each.VAR_KEYWORD
    ]
    by_default = sorted([*own, *shared], key=lambda each: each.default is not each.empty)
    call.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [each.replace(kind=each.KEYWORD_ONLY) for each in by_default]
    )
    call.__name__, call.__doc__ = offer.name, method.__doc__
    return call


async def told_meanwhile(
    work: Awaitable[str | ToolResult], seen: Seen, ctx: Context[Any, Any]
) -> str | ToolResult:
    """Wait for a tool, and report its last line of output every few seconds."""
    outcome: str | ToolResult | AtollError = ""
    async with anyio.create_task_group() as group:
        group.start_soon(_tell, seen, ctx)
        try:
            outcome = await work
        except AtollError as error:  # raised below: the group would wrap it
            outcome = error
        group.cancel_scope.cancel()
    if isinstance(outcome, AtollError):
        raise outcome
    return outcome


def blocks_of(answer: str | ToolResult) -> Any:
    """Return an answer as the protocol's blocks."""
    if isinstance(answer, str):
        return answer
    pictures = [Image(data=picture.data, format=picture.format) for picture in answer.pictures]
    return [answer.text, *pictures] if answer.text or not pictures else pictures


async def _tell(seen: Seen, ctx: Context[Any, Any]) -> None:
    passed = 0.0
    while True:
        await anyio.sleep(_TELL_EVERY_S)
        passed += _TELL_EVERY_S
        lines = seen.text.strip().splitlines()
        await ctx.report_progress(passed, None, lines[-1][-_LAST_CHARACTERS:] if lines else "running")
