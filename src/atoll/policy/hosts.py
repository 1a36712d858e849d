"""Names of hosts, and patterns of them."""

from __future__ import annotations

import functools
import re
import unicodedata

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
# A last label like these makes programs read the whole name as an address: 1.2.3.0x7f.
_NUMBER = re.compile(r"\d+|0x[0-9a-f]*")
_LONGEST = 253
ANY = "*"


def plain_host(name: str) -> str | None:
    """Return a name in the form for comparisons: lower case, ASCII, without a last dot.

    Returns:
        None if it is not the name of a host; an address is not. None also for a name that programs write in
        ASCII in different ways, such as ``straße.example``: only its ASCII form is unambiguous.
    """
    return _plain(name) if len(name) <= _LONGEST + 1 else None


@functools.lru_cache(maxsize=4096)
def _plain(name: str) -> str | None:
    text = name.removesuffix(".").lower()
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
        try:
            encoded = text.encode("idna")
            if encoded.decode("idna") != text:
                return None
        except UnicodeError:
            return None
        text = encoded.decode()
    if not 0 < len(text) <= _LONGEST:
        return None
    labels = text.split(".")
    if not all(_LABEL.fullmatch(label) for label in labels) or _NUMBER.fullmatch(labels[-1]):
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
    """Return the parent domains of a name, the nearest first: ``a.b.c`` is below ``b.c`` and ``c``."""
    found = []
    dot = name.find(".")
    while dot >= 0:
        found.append(name[dot + 1 :])
        dot = name.find(".", dot + 1)
    return found


def matches_host(pattern: str, name: str) -> bool:
    """Whether a plain name matches a plain pattern."""
    return pattern in (ANY, name) or (pattern.startswith("*.") and name.endswith(pattern[1:]))
