"""What callers give, looked at before it travels, so that an error names the value and not a place in a message."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from atoll.errors import InvalidSpecError

GuestPath = str | os.PathLike[str]
"""A path inside a sandbox, where one that is not absolute starts at the user's home; or one inside a volume."""


def path_text(path: GuestPath) -> str:
    """A path inside a sandbox as text.

    Raises:
        InvalidSpecError: It is neither text nor a path object.
    """
    try:
        text: object = os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidSpecError(f"{path!r} is no path in a sandbox", hint="give a str or a pathlib path")
    return text


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse what is none of the choices, of which there are two or more.

    Raises:
        InvalidSpecError: Says what was given, and what can be.
    """
    if value not in choices:
        listed = [repr(choice) for choice in choices]
        hint = f"give {', '.join(listed[:-1])} or {listed[-1]}"
        raise InvalidSpecError(f"{name} is {value!r}", hint=hint)


def check_texts(name: str, texts: Mapping[str, str]) -> None:
    """Refuse a mapping that is not of text to text. The values are not shown: they may be secrets.

    Raises:
        InvalidSpecError: Says which key.
    """
    for key, value in texts.items():
        kinds = {"the key": type(key), "the value": type(value)}
        for what, kind in kinds.items():
            if not issubclass(kind, str):
                raise InvalidSpecError(
                    f"{what} of {name}[{key!r}] is of type {kind.__name__}", hint="give a str"
                )
