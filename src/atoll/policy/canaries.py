"""Finds canaries in names: values that a sandbox can only have stolen, and that DNS could carry out."""

from __future__ import annotations

import base64
from collections.abc import Iterable

# A form that is shorter would be found by chance.
_SHORTEST = 6


class Canaries:
    """Values to look for.

    Names have no case, and a value may be cut into labels anywhere. So both are compared in lower case, and
    without dots.

    Args:
        values: The values.
    """

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._forms = tuple({form for value in values for form in _forms(value) if len(form) >= _SHORTEST})

    def in_name(self, name: str) -> bool:
        """Whether a name has a value in it: as it is, in hexadecimal, base32 or base64."""
        if not self._forms:
            return False
        joined = _joined(name)
        return any(form in joined for form in self._forms)


def _joined(text: str) -> str:
    return text.lower().replace(".", "")


def _forms(value: str) -> list[str]:
    data = value.encode()
    return [
        _joined(value),
        data.hex(),
        base64.b32encode(data).decode().rstrip("=").lower(),
        base64.b32hexencode(data).decode().rstrip("=").lower(),
        base64.urlsafe_b64encode(data).decode().rstrip("=").lower(),
    ]
