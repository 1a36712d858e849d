"""How far a long work has come."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One report of a long work: ``step`` is for a person to read; ``done`` of ``total`` where that is known.

    Both are of this step. A work of several steps says with ``whole`` how far all of it has come, from 0 to 1 by a
    guess of how long its steps take, so that one bar goes once from its beginning to its end.
    """

    step: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    whole: float | None = None
