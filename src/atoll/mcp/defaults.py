"""What the operator of the server decides."""

from __future__ import annotations

from dataclasses import dataclass

from atoll.types import EgressPolicy


@dataclass(frozen=True)
class Defaults:
    """What the operator has decided. A model cannot change it.

    Args:
        sandbox: The name of the sandbox that calls mean that name none.
        image: The image of new sandboxes; None means ``base``.
        template: The template of new sandboxes for which no image is named; None means the image.
        network: What new sandboxes may reach; None means ``internet``.
    """

    sandbox: str = "mcp"
    image: str | None = None
    template: str | None = None
    network: EgressPolicy | None = None
