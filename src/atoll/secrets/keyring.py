"""Keeps the key of the secrets in the system's keyring, by the Python package ``keyring``."""

from __future__ import annotations

import contextlib
import importlib
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from atoll.errors import HostError
from atoll.secrets.sealing import KEY_BYTES

_SERVICE = "atoll"
# A locked keyring may ask a person on a screen that nobody sees.
_ANSWER_S = 10.0


class Keyring:
    """A key in the system's keyring, under the service ``atoll`` and the home's path.

    Args:
        home: The home.
    """

    def __init__(self, home: Path) -> None:
        self._name = str(home)

    @property
    def place(self) -> str:
        """The keyring's entry, in words."""
        return f"the system's keyring, as {_SERVICE!r} of {self._name}"

    def read(self) -> bytes | None:
        """Return the key, or None if the keyring has none for this home.

        Raises:
            HostError: There is no keyring, it does not answer, or its entry is no key.
        """
        keyring = _package()
        text = _answer(lambda: keyring.get_password(_SERVICE, self._name))
        if text is None:
            return None
        with contextlib.suppress(ValueError, TypeError):
            key = bytes.fromhex(text)
            if len(key) == KEY_BYTES:
                return key
        raise HostError(f"what is in {self.place}, is no key", hint="remove the entry, or bring back the key")

    def create(self) -> bytes:
        """Put a key into the keyring if it has none for this home, and return the key.

        Raises:
            HostError: The keyring cannot be used.
        """
        if (key := self.read()) is not None:
            return key
        keyring, text = _package(), os.urandom(KEY_BYTES).hex()
        _answer(lambda: keyring.set_password(_SERVICE, self._name, text))
        made = self.read()
        if made is None:
            raise HostError("the system's keyring did not keep the key", hint=_HINT)
        return made


_HINT = "unlock the keyring, or unset ATOLL_SECRETS_KEYRING to keep the key in a file"


def _package() -> Any:
    try:
        return importlib.import_module("keyring")
    except ImportError:
        raise HostError(
            "ATOLL_SECRETS_KEYRING is on, but the Python package keyring is not installed",
            hint="install it for the Python that runs atoll, or unset ATOLL_SECRETS_KEYRING",
        ) from None


def _answer(ask: Callable[[], Any]) -> Any:
    """Return the keyring's answer, within a bounded time."""
    answers: list[Any] = []
    failures: list[str] = []

    def work() -> None:
        try:
            answers.append(ask())
        except Exception as error:  # each backend has errors of its own
            failures.append(type(error).__name__)

    asking = threading.Thread(target=work, name="keyring", daemon=True)
    asking.start()
    asking.join(_ANSWER_S)
    if failures:
        raise HostError(f"the system's keyring cannot be used: {failures[0]}", hint=_HINT)
    if not answers:
        raise HostError(f"the system's keyring did not answer in {_ANSWER_S:g} s", hint=_HINT)
    return answers[0]
