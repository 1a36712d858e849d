"""How far a long operation has come."""

from __future__ import annotations

import msgspec


class Progress(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """One report of a long operation. ``step`` is text for people; ``done`` of ``total`` is set where known.

    Both count within this step. ``whole`` is the progress of all steps together, from 0 to 1, by a guess of
    how long each takes. With it one bar moves once from beginning to end. ``heading`` says in one line what
    all steps together do and why; empty where the steps say enough.
    """

    step: str
    done: float = 0
    total: float | None = None
    unit: str = ""
    whole: float | None = None
    heading: str = ""
