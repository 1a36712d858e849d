"""Ids and names: their form, and how new ones are made."""

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
    """A new value for ``/etc/machine-id``: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def check_name(name: str | None) -> None:
    """Refuse a name that is not a valid host label.

    Raises:
        InvalidSpecError: The name is invalid.
    """
    if name is not None and not _NAME.fullmatch(name):
        raise InvalidSpecError(
            f"{name!r} is not a valid name",
            hint="use 1 to 63 lowercase letters, digits and dashes, without a dash at the start",
        )


def check_env(env: dict[str, str]) -> None:
    """Refuse environment variables that no program can get.

    Raises:
        InvalidSpecError: A name is invalid, a value contains a NUL, or the total size is over 256 KiB.
    """
    for name, value in env.items():
        if not _ENV_NAME.fullmatch(name) or "\0" in value:
            raise InvalidSpecError(
                f"{name!r} cannot be an environment variable", hint="use letters, digits and _"
            )
    if sum(len(name) + len(value) for name, value in env.items()) > ENV_LIMIT_BYTES:
        raise InvalidSpecError("env is over 256 KiB", hint="put large values into files")


def check_metadata(metadata: dict[str, str], name: str = "metadata") -> None:
    """Refuse labels that are too large for a list.

    Raises:
        InvalidSpecError: The total size is over 64 KiB.
    """
    if sum(len(key) + len(value) for key, value in metadata.items()) > METADATA_LIMIT_BYTES:
        raise InvalidSpecError(f"{name} is over 64 KiB", hint="keep large values elsewhere")
