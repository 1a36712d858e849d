"""Checks of the values that callers give.

They run before a value is sent, so that an error names the value and not a place in a message.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PureWindowsPath

import msgspec

from atoll.errors import InvalidSpecError

_MOST = 1 << 63
GuestPath = str | os.PathLike[str]
"""A path inside a sandbox or a volume. In a sandbox, a relative path starts at the user's home."""


def path_text(path: GuestPath) -> str:
    """Return a path inside a sandbox as text.

    Raises:
        InvalidSpecError: It is neither text nor a path object.
    """
    try:
        # a path of Windows has backslashes
        text: object = path.as_posix() if isinstance(path, PureWindowsPath) else os.fspath(path)
    except TypeError:
        text = None
    if not isinstance(text, str):
        raise InvalidSpecError(f"{path!r} is not a path in a sandbox", hint="give a str or a pathlib path")
    return text


def local_path(name: str, path: str | os.PathLike[str]) -> Path:
    """Return a path on this host.

    Raises:
        InvalidSpecError: It is neither text nor a path object.
    """
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise InvalidSpecError(f"{name} is {path!r}", hint="give a str or a pathlib path")
    return Path(path)


def check_number(
    name: str,
    value: object,
    *,
    least: float | None = None,
    most: float | None = None,
    whole: bool = False,
    hint: str = "give a number",
) -> None:
    """Refuse a value that is no number: text, truth values, NaN, and with ``whole`` also fractions.

    Raises:
        InvalidSpecError: It is not a number, or is out of range; the message shows it.
    """
    # some ints are greater than every float, and NaN is not equal to itself
    if (
        not isinstance(value, int if whole else (int, float))
        or isinstance(value, bool)
        or value != value
        or (isinstance(value, int) and abs(value) > _MOST)
        or (least is not None and value < least)
        or (most is not None and value > most)
    ):
        raise InvalidSpecError(f"{name} is {repr(value)[:60]}", hint=hint)


def check_text(name: str, value: object, *, hint: str = "give UTF-8") -> bytes:
    """Return text as it is sent. Refuse a value that cannot be sent as text.

    Args:
        hint: The remedy for text that is not UTF-8.

    Raises:
        InvalidSpecError: It is not text; the message shows it.
    """
    if not isinstance(value, str):
        raise InvalidSpecError(f"{name} is {value!r}", hint="give a str")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise InvalidSpecError(f"{name} is {value[:200]!r}, which is not valid UTF-8", hint=hint) from None


def check_kind(name: str, value: object, kind: type) -> None:
    """Refuse a value that is not a ``kind``.

    Raises:
        InvalidSpecError: It is not one; the message shows it.
    """
    if not isinstance(value, kind):
        raise InvalidSpecError(f"{name} is {value!r}", hint=f"give atoll's {kind.__name__}")


def as_json(body: object, *, hint: str = "give UTF-8") -> bytes:
    """Return a given value as it is sent.

    Args:
        hint: The remedy for text that is not UTF-8.

    Raises:
        InvalidSpecError: A part of it cannot be sent.
    """
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError as error:
        raise InvalidSpecError(f"{error.object[:200]!r} is not valid UTF-8", hint=hint) from None
    except (TypeError, OverflowError) as error:
        raise InvalidSpecError(
            f"an argument cannot be sent: {error}", hint="check the arguments' types"
        ) from None


def copied(name: str, texts: Mapping[str, str] | None) -> dict[str, str]:
    """Return a mapping of text to text as a dict; empty for None.

    Raises:
        InvalidSpecError: It is not such a mapping.
    """
    if texts is None:
        return {}
    check_texts(name, texts)
    return dict(texts)


def check_choice(name: str, value: object, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices, of which there are two or more.

    Raises:
        InvalidSpecError: It is none of them; the message shows it and the choices.
    """
    if value not in choices:
        listed = [repr(choice) for choice in choices]
        hint = f"give {', '.join(listed[:-1])} or {listed[-1]}"
        raise InvalidSpecError(f"{name} is {value!r}", hint=hint)


def check_texts(name: str, texts: Mapping[str, str]) -> None:
    """Refuse a mapping that is not of text to text. The values are not shown, because they may be secrets.

    Raises:
        InvalidSpecError: An entry is not text; the message names its key.
    """
    if not isinstance(texts, Mapping):
        raise InvalidSpecError(
            f"{name} is of type {type(texts).__name__}", hint="give a mapping of str to str"
        )
    for key, value in texts.items():
        kinds = {"the key": type(key), "the value": type(value)}
        for what, kind in kinds.items():
            if not issubclass(kind, str):
                raise InvalidSpecError(
                    f"{what} of {name}[{key!r}] is of type {kind.__name__}", hint="give a str"
                )


def texts_of(name: str, value: Iterable[str], *, hint: str = "give a list of str") -> list[str]:
    """Return the texts that an argument lists. One text is no list, and neither are a mapping's keys.

    Raises:
        InvalidSpecError: It is not a list of texts; the message shows it.
    """
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, bytearray, Mapping)):
        raise InvalidSpecError(f"{name} is {value!r}", hint=hint)
    texts = list(value)
    for text in texts:
        check_text(name, text)
    return texts
