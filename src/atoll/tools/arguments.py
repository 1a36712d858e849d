"""Arguments that several tools share, described for a model."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

Line = Annotated[str, Meta(description="A shell line, run by sh -c.", min_length=1)]

Path = Annotated[
    str, Meta(description="A path inside the sandbox. Relative ones start at the user's home.", min_length=1)
]
"""A file or directory."""

Directory = Annotated[str | None, Meta(description="Directory to run in; default: the user's home.")]

Seconds = Annotated[float, Meta(description="Seconds until it is killed.", gt=0, le=3600)]

Named = Annotated[str, Meta(description="Id of a copy.", min_length=1, max_length=100)]
