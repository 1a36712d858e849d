"""The outcome of a task, returned or raised, for its row."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from atoll.errors import CodeFailedError, ExecFailedError
from atoll.evals.rows import Status
from atoll.types import ExecResult
from atoll.types.internal import as_json, from_json

_VALUE_BYTES = 256 << 10
_ERROR_CHARACTERS = 2000
_OUTPUT_CHARACTERS = 4000


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a run ended; see ``Row``."""

    status: Status
    score: float | None = None
    value: Any = None
    error: str | None = None
    output: str = ""


def outcome_of(returned: object) -> Outcome:
    """Return the outcome of a task that returned a value.

    A boolean and an ``ExecResult`` say whether it passed, and score 1 or 0. Any other number is a score. In a
    mapping, ``score`` and ``passed`` do the same. Everything else has passed.
    """
    if isinstance(returned, ExecResult):
        return _of_program(returned)
    try:
        encoded = as_json(returned)
        value = from_json(encoded)
        score = _score(returned)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return Outcome(
            status="error", error=harmless(f"the task returned no JSON value: {error}", _ERROR_CHARACTERS)
        )
    if len(encoded) > _VALUE_BYTES:
        return Outcome(
            status="error",
            error=f"the task returned {len(encoded):,} bytes; at most {_VALUE_BYTES:,} are kept, so return less",
        )
    passed = returned.get("passed") if isinstance(returned, Mapping) else returned
    if passed is False:
        return Outcome(status="failed", score=score, value=value, error="the task returned that it failed")
    return Outcome(status="passed", score=score, value=value)


def failure_of(error: BaseException) -> Outcome:
    """Return the outcome of a task that raised. A failed check is a failure, any other exception an error."""
    result = getattr(error, "result", None)
    output = _written(result) if isinstance(result, ExecResult) else ""
    checked = isinstance(error, (AssertionError, ExecFailedError, CodeFailedError))
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, AssertionError) and not str(error):
        where = traceback.extract_tb(error.__traceback__)[-1:]
        text = f"AssertionError: {where[0].line or 'a check failed'}" if where else text
    return Outcome(
        status="failed" if checked else "error", error=harmless(text, _ERROR_CHARACTERS), output=output
    )


def harmless(text: str, most: int, *, end: bool = False) -> str:
    """Return the first or last ``most`` characters of a text, with control characters spelled out."""
    cut = text if len(text) <= most else f"… {text[-most:]}" if end else f"{text[:most]} …"
    if cut.isprintable():
        return cut
    return "".join(
        char
        if char.isprintable() or char in "\n\t"
        else char.encode("unicode_escape", "backslashreplace").decode()
        for char in cut
    )


def tail_of(text: str) -> str:
    """Return the end of the output, as rows keep it."""
    return harmless(text, _OUTPUT_CHARACTERS, end=True)


def _of_program(result: ExecResult) -> Outcome:
    value, output = {"exit_code": result.exit_code}, _written(result)
    if result.exit_code:
        text = harmless(f"{result.command or 'the program'} ended with {result.exit_code}", _ERROR_CHARACTERS)
        return Outcome(status="failed", score=0.0, value=value, error=text, output=output)
    return Outcome(status="passed", score=1.0, value=value, output=output)


def _written(result: ExecResult) -> str:
    return tail_of(result.stdout + result.stderr)


def _score(returned: object) -> float | None:
    if isinstance(returned, Mapping):
        if "score" in returned:
            score = _score(returned["score"])
            if score is None and returned["score"] is not None:
                raise ValueError(f"its score is {returned['score']!r}")
            return score
        return float(returned["passed"]) if isinstance(returned.get("passed"), bool) else None
    if not isinstance(returned, (bool, int, float)):
        return None
    if not math.isfinite(returned):
        raise ValueError(f"its score is {returned!r}")
    return float(returned)
