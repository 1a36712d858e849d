"""The settings that the operator of the server decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from atoll.types import EgressPolicy

ToolSet = Literal["core", "all"]
TOOL_SETS: tuple[ToolSet, ...] = get_args(ToolSet)


@dataclass(frozen=True)
class Defaults:
    """The operator's settings. A model cannot change them.

    Args:
        sandbox: The name of the sandbox for calls that name none.
        image: The image of new sandboxes; None means ``base``.
        template: The template of new sandboxes without a named image; None means the image.
        network: What new sandboxes may reach; None means ``internet``.
        tools: Which tools a model sees. Each tool's description takes room in the model's context, even
            unused.
    """

    sandbox: str = "mcp"
    image: str | None = None
    template: str | None = None
    network: EgressPolicy | None = None
    tools: ToolSet = "core"
