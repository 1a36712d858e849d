"""Names of hosts, and patterns of them."""

from __future__ import annotations

import functools
import re

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_LONGEST = 253
ANY = "*"


@functools.lru_cache(maxsize=4096)
def plain_host(name: str) -> str | None:
    """Return a name in the one form in which names are compared: lower case, ASCII, without a last dot.

    Returns:
        None if it is not the name of a host; an address is not.
    """
    text = name.removesuffix(".")
    if not text.isascii():
        try:
            text = text.encode("idna").decode()
        except UnicodeError:
            return None
    text = text.lower()
    if not 0 < len(text) <= _LONGEST:
        return None
    labels = text.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels) or labels[-1].isdigit():
        return None
    return text


def plain_pattern(pattern: str) -> str | None:
    """Return a pattern in the same form: a name, ``*.`` and a name, or ``*``. None if it is neither."""
    if pattern == ANY:
        return ANY
    wild = pattern.startswith("*.")
    name = plain_host(pattern[2:] if wild else pattern)
    if name is None:
        return None
    return f"*.{name}" if wild else name


def suffixes(name: str) -> list[str]:
    """Return what is below which the name is, the nearest first: ``a.b.c`` is below ``b.c`` and ``c``."""
    labels = name.split(".")
    return [".".join(labels[at:]) for at in range(1, len(labels))]


def pattern_covers(pattern: str, other: str) -> bool:
    """Whether every name that matches the other pattern matches this one. Both are plain."""
    if pattern in (ANY, other):
        return True
    if not pattern.startswith("*.") or other == ANY:
        return False
    return other.removeprefix("*.").endswith(pattern[1:])


def matches_host(pattern: str, name: str) -> bool:
    """Whether a plain name matches a plain pattern."""
    return pattern in (ANY, name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))
