"""Adds functions to a server as tools, whose errors a model can read and act on."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable
from typing import Any, ParamSpec, TypeVar

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ToolError
from mcp_types import ToolAnnotations

from atoll.errors import AtollError
from atoll.types import Progress

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Tools:
    """Adds tools to a server.

    Args:
        server: The server.
    """

    def __init__(self, server: MCPServer[Any]) -> None:
        self._server = server

    def add(
        self,
        function: Callable[..., Awaitable[Any]],
        *,
        title: str,
        reads: bool = False,
        destroys: bool = False,
    ) -> None:
        """Add a function as the tool of its name. Its docstring is what a model reads.

        Args:
            function: Its annotations describe the arguments.
            title: What people see.
            reads: It changes nothing.
            destroys: What it erases is gone.
        """
        self._server.add_tool(
            explained(function, ToolError),
            title=title,
            description=" ".join((function.__doc__ or "").split()),
            annotations=ToolAnnotations(
                title=title, read_only_hint=reads, destructive_hint=destroys, open_world_hint=False
            ),
            structured_output=False,
        )


def explained(
    function: Callable[_P, Awaitable[_R]], kind: type[ToolError | ResourceError]
) -> Callable[_P, Awaitable[_R]]:
    """Return the function with errors of atoll told to the client: what is wrong, and the remedy."""

    @functools.wraps(function)
    async def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return await function(*args, **kwargs)
        except AtollError as error:
            raise kind(f"{error} [{error.code}]") from error

    return call


def reporter(ctx: Context[Any, Any]) -> Callable[[Progress], Awaitable[None]]:
    """Return a callback that tells the client how far a long operation is."""

    async def report(progress: Progress) -> None:
        if progress.whole is not None:
            await ctx.report_progress(progress.whole, 1.0, progress.step)
        else:
            await ctx.report_progress(progress.done, progress.total, progress.step)

    return report
