"""Which models a sandbox may use: patterns of names, and what two lists of them allow both."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

_ANY = "*"


def matches_model(pattern: str, name: str) -> bool:
    """Whether the name of an alias, or a model as ``provider/model``, matches a pattern."""
    return _expression(pattern).fullmatch(name) is not None


def narrowed_models(allow: Sequence[str], within: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of what both lists allow. Of two patterns that only overlap, nothing is allowed."""
    kept = [pattern for pattern in allow if _covers_any(within, pattern)]
    kept += [pattern for pattern in within if pattern not in kept and _covers_any(allow, pattern)]
    return tuple(dict.fromkeys(kept))


def _covers_any(patterns: Iterable[str], other: str) -> bool:
    # As a text, a pattern stands for all that it matches: its own `*` is matched by a `*` alone.
    return any(matches_model(pattern, other) for pattern in patterns)


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\*+", pattern)  # many in a row are one, and cost no more time than one
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
