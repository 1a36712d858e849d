"""Which models a sandbox may use: patterns of names, and what two lists of them allow both."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types import ModelSetup
from atoll.types.internal import converted

_ANY = "*"


def matches_model(pattern: str, name: str) -> bool:
    """Whether the name of an alias, or a model as ``provider/model``, matches a pattern."""
    return _expression(pattern).fullmatch(name) is not None


def narrowed_models(allow: Sequence[str], within: Sequence[str]) -> tuple[str, ...]:
    """Return patterns of what both lists allow. Of two patterns that only overlap, nothing is allowed."""
    kept = [pattern for pattern in allow if _covers_any(within, pattern)]
    kept += [pattern for pattern in within if pattern not in kept and _covers_any(allow, pattern)]
    return tuple(dict.fromkeys(kept))


def models_from_text(text: str) -> ModelSetup:
    """Return the models of a text in JSON, which begins with a brace, or in TOML.

    Raises:
        InvalidSpecError: The text is neither, or names no valid models.
    """
    try:
        read = json.loads(text) if text.lstrip().startswith("{") else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidSpecError(f"this is neither TOML nor JSON: {error}"[:500], hint="correct it") from None
    try:
        return converted(read, ModelSetup)
    except msgspec.ValidationError as error:
        raise InvalidSpecError(
            f"these are no models: {error}"[:800], hint="`atoll docs models` shows an example"
        ) from None


def _covers_any(patterns: Iterable[str], other: str) -> bool:
    # As a text, a pattern stands for all that it matches: its own `*` is matched by a `*` alone.
    return any(matches_model(pattern, other) for pattern in patterns)


@lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    parts = re.split(r"\*+", pattern)  # many in a row are one, and cost no more time than one
    return re.compile(".*".join(re.escape(part) for part in parts), re.DOTALL)
