"""Encrypts the values of secrets so that each opens only in the place for which it was sealed."""

from __future__ import annotations

import os
from typing import Protocol

import msgspec

from atoll.errors import DamagedError, HostError

KEY_BYTES = 32
_NONCE_BYTES = 12
_FORMAT = b"\x01"
_PURPOSE = b"atoll secrets 1\0"


class Belonging(msgspec.Struct, frozen=True, kw_only=True):
    """The place of a sealed value. The value opens with exactly this belonging and no other.

    So a row of the database that somebody changes, or a value that somebody moves to another row, does not
    open.
    """

    team: str | None
    secret_id: str
    version: int
    name: str
    hosts: tuple[str, ...]
    canary: bool


class KeySource(Protocol):
    """Where the key of a home is kept."""

    @property
    def place(self) -> str:
        """The place, in words for people."""
        ...

    def read(self) -> bytes | None:
        """Return the key, or None if there is none yet."""
        ...

    def create(self) -> bytes:
        """Make a key if there is none yet, and return the key that is there."""
        ...


class Vault:
    """Seals and opens values. Each team has a key of its own, derived from the home's key.

    Args:
        key: The home's key, 32 random bytes.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def __repr__(self) -> str:
        return "<Vault>"

    def seal(self, value: str, belonging: Belonging) -> bytes:
        """Return a value encrypted and authenticated together with its belonging."""
        # imported here, because most homes have no secrets
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        nonce = os.urandom(_NONCE_BYTES)
        cipher = ChaCha20Poly1305(self._key_of(belonging.team))
        return _FORMAT + nonce + cipher.encrypt(nonce, value.encode(), _bound(belonging))

    def open(self, sealed: bytes, belonging: Belonging) -> str:
        """Return the value in a result of ``seal``.

        Raises:
            DamagedError: The result was changed, belongs to something else, or was sealed with another key.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

        nonce, text = sealed[1 : 1 + _NONCE_BYTES], sealed[1 + _NONCE_BYTES :]
        try:
            if sealed[:1] != _FORMAT or len(nonce) != _NONCE_BYTES:
                raise InvalidTag
            cipher = ChaCha20Poly1305(self._key_of(belonging.team))
            return cipher.decrypt(nonce, text, _bound(belonging)).decode()
        except (InvalidTag, UnicodeDecodeError):
            raise DamagedError(
                f"the secret {belonging.name!r} cannot be opened: its row or the key was changed",
                hint=f"set its value again: atoll secret update {belonging.name}",
            ) from None

    def _key_of(self, team: str | None) -> bytes:
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        # JSON tells no team from a team of any name.
        info = _PURPOSE + msgspec.json.encode(team)
        return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=info).derive(self._key)


def open_vault(source: KeySource, *, may_create: bool) -> Vault:
    """Return the vault of a home.

    Args:
        source: Where its key is.
        may_create: Whether a missing key is made. A new key opens nothing that is sealed already.

    Raises:
        HostError: The key is missing, or cannot be used.
    """
    key = source.create() if may_create else source.read()
    if key is None:
        raise HostError(
            f"the key of the secrets is missing: it is not in {source.place}",
            hint="bring it back from a backup, or delete the secrets and create them again",
        )
    return Vault(key)


def _bound(belonging: Belonging) -> bytes:
    return _PURPOSE + msgspec.json.encode(belonging)
