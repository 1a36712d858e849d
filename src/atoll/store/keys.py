"""The key of one owner's part of a store, and the keys that come from it."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os

from atoll.errors import DamagedError, InvalidSpecError

KEY_BYTES = 32
ID_BYTES = 16
_NONCE_BYTES = 12
_CHECK_BYTES = 4
_TEXT = "atoll-store-1-"


class StoreKey:
    """The key of an owner: a team, or whoever owns the home. Who has it can read all that the owner stored.

    Without it nothing can be read or told apart, and it is in no object of the store. So an owner whose key is
    erased has nothing stored any more.

    Args:
        key: 32 random bytes.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise InvalidSpecError(f"a key of a store has {KEY_BYTES} bytes, not {len(key)}")
        self._key = key
        # SHA-256 after a whole block of key: on today's processors twice as fast as a keyed BLAKE2
        self._naming = hashlib.sha256(self._derived(b"naming").ljust(hashlib.sha256().block_size, b"\0"))

    def __repr__(self) -> str:
        return f"<StoreKey of {self.domain}>"

    @classmethod
    def new(cls) -> StoreKey:
        """Return a new random key."""
        return cls(os.urandom(KEY_BYTES))

    @classmethod
    def from_text(cls, text: str) -> StoreKey:
        """Return the key of a result of ``text``.

        Raises:
            InvalidSpecError: The text is no key, or has a slip of the pen.
        """
        text = text.strip().lower()
        try:
            if not text.startswith(_TEXT):
                raise ValueError
            data = base64.b32decode(text.removeprefix(_TEXT).upper() + "=" * (-len(text[len(_TEXT) :]) % 8))
            key, check = data[:KEY_BYTES], data[KEY_BYTES:]
            # the last letter has bits that are no part of the key: two texts of one key would confuse
            if len(key) != KEY_BYTES or check != _check(key) or cls(key).text() != text:
                raise ValueError
        except (ValueError, binascii.Error):
            raise InvalidSpecError(
                "this is no key of a store, or not all of one",
                hint=f"it begins with {_TEXT!r} and is one long word",
            ) from None
        return cls(key)

    def text(self) -> str:
        """Return the key as a text to write down, with a check of it."""
        encoded = base64.b32encode(self._key + _check(self._key)).decode().rstrip("=").lower()
        return _TEXT + encoded

    @property
    def raw(self) -> bytes:
        """The key itself."""
        return self._key

    @property
    def domain(self) -> str:
        """The name of the owner's part of a store. It says nothing about the owner."""
        return self._derived(b"domain").hex()[: 2 * ID_BYTES]

    def id_of(self, data: bytes | memoryview) -> bytes:
        """Return the id of a content: the same for equal ones of this owner, and unlike all others'."""
        digest = self._naming.copy()
        digest.update(data)
        return digest.digest()[:ID_BYTES]

    def pack_key(self, pack: bytes) -> bytes:
        """Return the key for the frames of one pack, so that their nonces are just their numbers."""
        return self._derived(b"packs", pack)

    def seal(self, name: str, data: bytes) -> bytes:
        """Encrypt and authenticate a whole object together with its name."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce = os.urandom(_NONCE_BYTES)
        return nonce + AESGCM(self._derived(b"objects")).encrypt(nonce, data, name.encode())

    def open(self, name: str, sealed: bytes) -> bytes:
        """Return what ``seal`` has encrypted under this name.

        Raises:
            DamagedError: It was changed, moved here from another name, or sealed with another key.
        """
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        nonce, rest = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            if len(nonce) < _NONCE_BYTES:
                raise InvalidTag
            return AESGCM(self._derived(b"objects")).decrypt(nonce, rest, name.encode())
        except InvalidTag:
            raise DamagedError(f"the object {name} of the store is not as it was written") from None

    def _derived(self, purpose: bytes, more: bytes = b"") -> bytes:
        return hashlib.blake2b(
            more, digest_size=KEY_BYTES, key=self._key, person=b"atoll " + purpose
        ).digest()


def _check(key: bytes) -> bytes:
    return hashlib.blake2b(key, digest_size=_CHECK_BYTES, person=b"atoll check").digest()
