"""Adds functions to a server as tools: the schemas of their arguments, and errors that a model can act on."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Any, ParamSpec, TypeVar, get_args, get_origin

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import ToolAnnotations
from msgspec import Meta
from pydantic import Field

from atoll.errors import AtollError
from atoll.tools import description_of
from atoll.types import Progress

_P = ParamSpec("_P")
_R = TypeVar("_R")
_BOUNDS = ("ge", "gt", "le", "lt", "min_length", "max_length")


class Tools:
    """Adds tools to a server.

    Args:
        server: The server.
        only: The names of the tools to add; None adds all.
    """

    def __init__(self, server: MCPServer[Any], only: Collection[str] | None = None) -> None:
        self._server = server
        self._only = only

    def add(
        self,
        function: Callable[..., Awaitable[Any]],
        *,
        title: str,
        reads: bool = False,
        destroys: bool = False,
    ) -> None:
        """Add a function as the tool of its name. A model reads its docstring.

        Args:
            function: Its annotations describe the arguments.
            title: The name for people.
            reads: Whether it changes nothing.
            destroys: Whether it erases something for good.
        """
        if self._only is not None and function.__name__ not in self._only:
            return
        self._server.add_tool(
            described(explained(function, ToolError)),
            title=title,
            description=description_of(function),
            annotations=ToolAnnotations(
                title=title, read_only_hint=reads, destructive_hint=destroys, open_world_hint=False
            ),
            structured_output=False,
        )


def described(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Give a function the signature that the server reads, with pydantic's ``Field`` for each ``Meta``."""
    signature = inspect.signature(function, eval_str=True)
    found = [
        each.replace(annotation=annotation_of(each.annotation)) for each in signature.parameters.values()
    ]
    function.__signature__ = signature.replace(parameters=found)  # type: ignore[attr-defined]
    function.__annotations__ = {each.name: each.annotation for each in found}
    return function


def annotation_of(kind: Any) -> Any:
    """Return an annotation with ``Field`` for each ``Meta`` in it."""
    if get_origin(kind) is list:
        return list[annotation_of(get_args(kind)[0])]  # type: ignore[misc]
    if get_origin(kind) is not Annotated:
        return kind
    inner, *extra = get_args(kind)
    return Annotated[
        (annotation_of(inner), *(field_of(each) if isinstance(each, Meta) else each for each in extra))
    ]


def field_of(meta: Meta) -> Any:
    """Return pydantic's form of it."""
    bounds = {name: getattr(meta, name) for name in _BOUNDS if getattr(meta, name) is not None}
    return Field(description=meta.description, **bounds)


def explained(
    function: Callable[_P, Awaitable[_R]], kind: type[ToolError | ResourceError]
) -> Callable[_P, Awaitable[_R]]:
    """Return a function that reports atoll's errors to the client: the fault and the remedy."""

    @functools.wraps(function)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return await function(*args, **kwargs)
        except AtollError as error:
            raise kind(f"{error.told_to('mcp')} [{error.code}]") from error

    return call


def reporter(ctx: Context[Any, Any]) -> Callable[[Progress], Awaitable[None]]:
    """Return a callback that tells the client how far a long operation is."""

    async def report(progress: Progress) -> None:
        if progress.whole is not None:
            await ctx.report_progress(progress.whole, 1.0, progress.step)
        else:
            await ctx.report_progress(progress.done, progress.total, progress.step)

    return report
