"""The keys that leave a terminal without ending its program."""

from __future__ import annotations

import click

DEFAULT_KEYS = "ctrl-p,ctrl-q"
_CONTROLLED = "@abcdefghijklmnopqrstuvwxyz[\\]^_"


class DetachKeys:
    """Finds a sequence of keys in typed input, and holds back input that may become it.

    Args:
        keys: The bytes that a terminal sends for the keys. Empty bytes match nothing.
    """

    def __init__(self, keys: bytes) -> None:
        self._keys = keys
        self._pending = b""
        self.found = False

    @property
    def pending(self) -> bool:
        """Tell whether input is held back."""
        return bool(self._pending)

    def feed(self, data: bytes) -> bytes:
        """Take typed input and return the program's part of it. After the keys, the program gets nothing."""
        passed = b""
        for at in range(len(data)):
            self._pending += data[at : at + 1]
            while not self._keys.startswith(self._pending):
                passed += self._pending[:1]
                self._pending = self._pending[1:]
            if self._pending == self._keys and self._keys:
                self.found = True
                break
            if not self._keys:
                passed, self._pending = passed + self._pending, b""
        return passed

    def give_up(self) -> bytes:
        """Return the input held back, because the rest of the keys did not follow."""
        passed, self._pending = self._pending, b""
        return passed


class DetachKeysOption(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """A parameter with keys like ``ctrl-p,ctrl-q`` or ``ctrl-]``; ``none`` means no keys."""

    name = "keys"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> bytes:
        """Return the bytes that a terminal sends for the keys."""
        if isinstance(value, bytes):
            return value
        if value == "none":
            return b""
        keys = b""
        for key in str(value).split(","):
            name = key.lower()
            if len(key) == 1 and key.isascii() and key.isprintable():
                keys += key.encode()
            elif name.startswith("ctrl-") and len(name) == 6 and name[5] in _CONTROLLED:
                keys += bytes([_CONTROLLED.index(name[5])])
            else:
                self.fail(
                    f"{key!r} is not a key: give ctrl-a to ctrl-z, ctrl-], a letter, or none", param, ctx
                )
        return keys
