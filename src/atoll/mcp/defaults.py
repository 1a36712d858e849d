"""What the operator of the server decides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from atoll.types import EgressPolicy

ToolSet = Literal["core", "all"]
TOOL_SETS: tuple[ToolSet, ...] = get_args(ToolSet)


@dataclass(frozen=True)
class Defaults:
    """What the operator has decided. A model cannot change it.

    Args:
        sandbox: The name of the sandbox that calls mean that name none.
        image: The image of new sandboxes; None means ``base``.
        template: The template of new sandboxes for which no image is named; None means the image.
        network: What new sandboxes may reach; None means ``internet``.
        tools: Which tools a model sees. Each costs it room for its description, whether it is used or not.
    """

    sandbox: str = "mcp"
    image: str | None = None
    template: str | None = None
    network: EgressPolicy | None = None
    tools: ToolSet = "core"
