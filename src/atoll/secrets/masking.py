"""Masks the values of secrets in text, in each form in which edge and relay look for canaries, and a few more."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, quote_plus, unquote

# A form that is shorter than this is not looked for: it would be found by chance.
_SHORTEST = 6
_Encode = Callable[[bytes], bytes]


def forms_of(value: str) -> set[str]:
    """Return a value unchanged, in base64 at each alignment, escaped for URLs, JSON and shells, and in hex."""
    data = value.encode()
    found = {
        *(_aligned(encode, data, offset) for encode in _BASE64 for offset in range(3)),
        *(json.dumps(value, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False)),
        shlex.quote(value),
        # inside longer quotes
        value.replace("'", "'\\''"),
        value.replace("'", "'\"'\"'"),
        quote(value, safe=""),
        quote_plus(value),
        data.hex(),
        data.hex().upper(),
    }
    return {value, *(form for form in found if len(form) >= _SHORTEST)}


class Mask:
    """Masks values in text. What it costs does not depend on how many values there are.

    Args:
        values: The values, by the names that take their places.
    """

    def __init__(self, values: Mapping[str, str]) -> None:
        self._forms: dict[str, list[tuple[str, str]]] = {}
        for name, value in values.items():
            for form in forms_of(value):
                self._forms.setdefault(form[:_SHORTEST], []).append((form, name))
        for forms in self._forms.values():
            forms.sort(key=lambda each: -len(each[0]))
        self._head_lengths = sorted({len(head) for head in self._forms}, reverse=True)
        self.longest = max((len(form) for forms in self._forms.values() for form, _ in forms), default=0)

    def of(self, text: str, most: int) -> str:
        """Return the first characters of a text, with ``[secret NAME]`` in place of each value that begins in them.

        Whoever sees what is masked can try out whole values, and no parts of them.

        Args:
            text: The text.
            most: How many of its characters to return, if none is masked.
        """
        masked = "".join(self._pieces(text, most))
        if "%" not in masked:
            return masked
        # Anything may be escaped for URLs, in more ways than there are forms.
        decoded = unquote(text[: 3 * (most + self.longest)])
        bare = "".join(self._pieces(decoded, most))
        return masked if bare == decoded[:most] else bare

    def _pieces(self, text: str, most: int) -> Iterator[str]:
        at = begin = 0
        end = min(most, len(text))
        while at < end:
            found = self._found(text, at)
            if found is None:
                at += 1
                continue
            length, name = found
            yield text[begin:at]
            yield f"[secret {name}]"
            at = begin = at + length
        yield text[begin:end]

    def _found(self, text: str, at: int) -> tuple[int, str] | None:
        for length in self._head_lengths:
            for form, name in self._forms.get(text[at : at + length], ()):
                if text.startswith(form, at):
                    return len(form), name
        return None


def _aligned(encode: _Encode, value: bytes, offset: int) -> str:
    """The part of the base64 of a longer text that the value alone decides, with so many bytes before it."""
    padded = bytes(offset) + value
    first, last = (offset * 8 + 5) // 6, len(padded) * 8 // 6
    return encode(padded)[first : max(first, last)].decode()


_BASE64: tuple[_Encode, ...] = (base64.b64encode, base64.urlsafe_b64encode)
