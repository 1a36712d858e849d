"""How far a long work has come."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One report of a long work: ``step`` is for a person to read; ``done`` of ``total`` where that is known."""

    step: str
    done: float = 0
    total: float | None = None
    unit: str = ""
