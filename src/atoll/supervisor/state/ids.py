"""Ids and names: how they look and how new ones are made."""

from __future__ import annotations

import re
import secrets
import string

from atoll.errors import InvalidSpecError

_ALPHABET = string.ascii_lowercase + string.digits
_REST = len(_ALPHABET) ** 19
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ENV_LIMIT_BYTES = 256 * 1024
METADATA_LIMIT_BYTES = 64 * 1024


def new_id() -> str:
    """A sandbox or snapshot id: 20 lowercase letters and digits, the first a letter."""
    first, rest = divmod(secrets.randbelow(len(string.ascii_lowercase) * _REST), _REST)
    digits = [string.ascii_lowercase[first]]
    for _ in range(19):
        rest, digit = divmod(rest, len(_ALPHABET))
        digits.append(_ALPHABET[digit])
    return "".join(digits)


def new_machine_uid() -> str:
    """What ``/etc/machine-id`` holds: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def check_name(name: str | None) -> None:
    """Refuse a name that could not be a host label.

    Raises:
        InvalidSpecError: It is no name.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"{name!r} is no name", hint="use 1 to 63 lowercase letters, digits and dashes, no dash first"
        )


def check_env(env: dict[str, str]) -> None:
    """Refuse variables that no program could be given.

    Raises:
        InvalidSpecError: A name is not a variable's, a value holds a NUL, or all together is over 256 KiB.
    """
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            raise InvalidSpecError(
                f"{name!r} cannot be an environment variable", hint="use letters, digits and _"
            )
    if sum(len(name) + len(value) for name, value in env.items()) > ENV_LIMIT_BYTES:
        raise InvalidSpecError("env is over 256 KiB", hint="put large values into files")


def check_metadata(metadata: dict[str, str], name: str = "metadata") -> None:
    """Refuse labels that are too much for a list.

    Raises:
        InvalidSpecError: All together is over 64 KiB.
    """
    if sum(len(key) + len(value) for key, value in metadata.items()) > METADATA_LIMIT_BYTES:
        raise InvalidSpecError(f"{name} is over 64 KiB", hint="keep large values elsewhere")
