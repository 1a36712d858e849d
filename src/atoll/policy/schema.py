"""The JSON schema of policies, with the types' docstrings about each key."""

from __future__ import annotations

import inspect
import re
from typing import Any

import msgspec

from atoll.types import Policy
from atoll.types.internal import from_json

_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {8}.*)*)", re.MULTILINE)


def schema() -> dict[str, Any]:
    """Return the JSON schema of a policy."""
    # The defaults of msgspec's have tuples; as JSON they are lists.
    found: dict[str, Any] = from_json(msgspec.json.encode(msgspec.json.schema(Policy)))
    for kind in found["$defs"].values():
        _describe(kind)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "atoll policy", **found}


def _describe(kind: dict[str, Any]) -> None:
    """Split the docstring of a type into the descriptions of the type and of its keys."""
    what, _, arguments = inspect.cleandoc(kind["description"]).partition("\nArgs:\n")
    kind["description"] = _line(what)
    for key, text in _ARGUMENT.findall(arguments):
        kind["properties"][key]["description"] = _line(text)


def _line(text: str) -> str:
    return " ".join(text.replace("``", "`").split())
