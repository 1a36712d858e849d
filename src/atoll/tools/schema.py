"""A tool for a model: a name, a description and a JSON schema of arguments, all from a method."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.internal import converted, from_json


@dataclass(frozen=True)
class Offer:
    """A method that is offered as a tool of its name. The model reads its docstring.

    Args:
        name: The method's name.
        title: Its title for people.
        reads: Whether it changes nothing.
        destroys: Whether it erases something for good.
    """

    name: str
    title: str
    reads: bool = False
    destroys: bool = False


def description_of(function: Callable[..., object]) -> str:
    """Return the docstring as one line."""
    return " ".join((function.__doc__ or "").split())


def schema_of(function: Callable[..., object]) -> dict[str, Any]:
    """Return the JSON schema of a method's arguments, without ``self``."""
    kind = _struct_of(function)
    schema = dict(msgspec.json.schema(kind)["$defs"][kind.__name__])
    del schema["title"]
    # some libraries and models take no choice of texts without its type
    properties = {
        name: {"type": "string", **each} if "enum" in each else each
        for name, each in schema["properties"].items()
    }
    return {**schema, "properties": properties, "required": schema.get("required", [])}


def checked(function: Callable[..., object], arguments: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """Return all arguments of a call, with defaults for the missing ones.

    Args:
        function: The method.
        arguments: A mapping, or JSON as a model writes it. A number may be written as a text.

    Raises:
        InvalidSpecError: The arguments do not fit the schema.
    """
    kind = _struct_of(function)
    try:
        given = from_json(arguments or "{}") if isinstance(arguments, (str, bytes)) else dict(arguments)
        found = converted(given, kind, strict=False)
    except (msgspec.DecodeError, UnicodeError, TypeError, ValueError) as error:
        names = ", ".join(kind.__struct_fields__)
        raise InvalidSpecError(
            f"the arguments of {function.__name__} are wrong: {error}",
            hint=f"it takes a JSON object of {names}",
        ) from error
    return {name: getattr(found, name) for name in kind.__struct_fields__}


@functools.cache
def _struct_of(function: Callable[..., object]) -> type[msgspec.Struct]:
    found = inspect.signature(function, eval_str=True).parameters.values()
    fields = [
        (each.name, each.annotation)
        if each.default is each.empty
        else (each.name, each.annotation, each.default)
        for each in found
        if each.name != "self"
    ]
    return msgspec.defstruct(function.__name__, fields, kw_only=True, forbid_unknown_fields=True)
