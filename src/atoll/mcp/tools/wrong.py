"""The error texts for a model's wrong arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import ValidationError

_SHOWN = 80


def wrong_arguments(tool: str, error: ValidationError, known: Sequence[str]) -> str:
    """Describe the fault of each argument, and list the arguments that the tool takes."""
    faults = "; ".join(_fault(each) for each in error.errors(include_url=False))
    return f"the arguments of `{tool}` are wrong: {faults} ({_takes(known)}) [invalid_spec]"


def unknown_arguments(tool: str, given: Sequence[str], known: Sequence[str]) -> str:
    """Name the arguments that a tool does not have, and list those that it takes."""
    names = ", ".join(f"`{name[:_SHOWN]}`" for name in given)
    return f"`{tool}` has no argument {names} ({_takes(known)}) [invalid_spec]"


def _takes(known: Sequence[str]) -> str:
    return f"it takes {', '.join(f'`{name}`' for name in known)}" if known else "it takes none"


def _fault(told: Any) -> str:
    name = ".".join(str(part) for part in told["loc"])
    if told["type"] == "missing":
        return f"`{name}` is missing"
    wanted = str(told["msg"]).removeprefix("Input ").rstrip(".")
    return f"`{name}` is {repr(told['input'])[:_SHOWN]} and {wanted[:1].lower()}{wanted[1:]}"
