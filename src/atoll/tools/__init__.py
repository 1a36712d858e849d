"""Tools for a model on one sandbox: names, descriptions, JSON schemas, and calls whose answers are bounded.

For example::

    from atoll import Sandbox
    from atoll.tools import for_sandbox

    with Sandbox.create() as sandbox, for_sandbox(sandbox) as tools:
        print(tools.as_openai())
        print(tools.call("run", {"command": "uname -a"}))
"""

from __future__ import annotations

from collections.abc import Collection
from typing import overload

from atoll.sdk import AsyncSandbox, Sandbox
from atoll.tools._async.toolset import TOOL_CLASSES, AsyncTool, AsyncTools
from atoll.tools._async.tries import tried
from atoll.tools._sync.toolset import Tool, Tools
from atoll.tools.arguments import Line, Path, Seconds
from atoll.tools.results import Picture, ToolResult, image_kind, told
from atoll.tools.schema import Offer, description_of
from atoll.tools.text import KEPT_BYTES, MOST_CHARACTERS, MOST_FILE_BYTES, Seen, clipped, columns, section

__all__ = [
    "KEPT_BYTES",
    "MOST_CHARACTERS",
    "MOST_FILE_BYTES",
    "Line",
    "Path",
    "Seconds",
    "TOOL_CLASSES",
    "AsyncTool",
    "AsyncTools",
    "Offer",
    "Picture",
    "Seen",
    "Tool",
    "ToolResult",
    "Tools",
    "clipped",
    "columns",
    "description_of",
    "for_sandbox",
    "image_kind",
    "section",
    "told",
    "tried",
]


@overload
def for_sandbox(
    sandbox: Sandbox, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Tools: ...
@overload
def for_sandbox(
    sandbox: AsyncSandbox, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> AsyncTools: ...
def for_sandbox(
    sandbox: Sandbox | AsyncSandbox, *, only: Collection[str] | None = None, without: Collection[str] = ()
) -> Tools | AsyncTools:
    """Return the tools on a sandbox.

    Args:
        sandbox: The sandbox to act on. An ``AsyncSandbox`` gives tools whose ``call`` is awaited.
        only: The names of the tools for the model; None means all.
        without: The names of tools to leave out, such as ``run_code``.

    Raises:
        InvalidSpecError: A name belongs to no tool.
    """
    if isinstance(sandbox, AsyncSandbox):
        return AsyncTools(sandbox, only=only, without=without)
    return Tools(sandbox, only=only, without=without)
