"""Arguments that several tools share, described for a model."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Which = Annotated[
    str | None, Field(description="Name or id of the sandbox. Leave it out to use the current one.")
]
"""The sandbox that a call means."""

Named = Annotated[str, Field(description="Name or id of the sandbox.", min_length=1, max_length=100)]
