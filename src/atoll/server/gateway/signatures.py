"""Signed addresses of files. A holder may read or write that file without the token that signed it."""

from __future__ import annotations

import base64
import hashlib
from typing import Literal
from urllib.parse import parse_qsl, urlencode

from atoll.server.tokens import same

Operation = Literal["read", "write"]
_KNOWN = ("path", "username", "signature", "signature_expiration")
_EXPIRATION_DIGITS = 15


class BadSignatureError(ValueError):
    """Reports an invalid signed address. The message equals that of E2B's own agent."""


def sign(path: str, operation: Operation, username: str, token: str, expiration: str) -> str:
    """Return the signature of an address. ``expiration`` is Unix seconds, or empty for no end."""
    return _ended(_begun(path, operation, username), token, expiration)


def is_signed(query: bytes) -> bool:
    """Tell whether there is a signature at all."""
    return b"signature=" in query


class Signed:
    """A signed address, parsed once and then checked against many possible signers.

    Args:
        query: The query, after the ``?``.
        operation: The operation on the file.

    Raises:
        BadSignatureError: The address has no signature, or nobody can have signed it.
    """

    def __init__(self, query: bytes, operation: Operation) -> None:
        values = _values(query)
        self._signature = values.get("signature", "")
        if not self._signature:
            raise BadSignatureError("missing signature query parameter")
        self._path, self._username = values.get("path", ""), values.get("username", "")
        if ":" in self._username:
            # no user has this name, and a signature for one operation would also be one for another
            raise BadSignatureError("invalid signature")
        self._expiration = values.get("signature_expiration", "")
        self._begun = _begun(self._path, operation, self._username)

    def is_by(self, token: str) -> bool:
        """Tell whether the holder of a token signed the address."""
        return same(self._signature, _ended(self._begun.copy(), token, self._expiration))

    def query(self, now: float) -> bytes:
        """Return the query for the agent: the signed parts, in a single normal form.

        Raises:
            BadSignatureError: The signature has expired.
        """
        if self._expiration and not _is_ahead(self._expiration, now):
            raise BadSignatureError("signature is already expired")
        seen = {name: value for name, value in (("path", self._path), ("username", self._username)) if value}
        return urlencode(seen).encode()


def checked(query: bytes, operation: Operation, token: str, now: float) -> bytes:
    """Return the query that the agent may see, for an address that the holder of ``token`` signed.

    Raises:
        BadSignatureError: The signature is for something else, by somebody else, or expired.
    """
    signed = Signed(query, operation)
    if not signed.is_by(token):
        raise BadSignatureError("invalid signature")
    return signed.query(now)


def _begun(path: str, operation: Operation, username: str) -> hashlib._Hash:
    return hashlib.sha256(f"{path}:{operation}:{username}:".encode(errors="surrogateescape"))


def _ended(digest: hashlib._Hash, token: str, expiration: str) -> str:
    digest.update(f"{token}:{expiration}".encode() if expiration else token.encode())
    return "v1_" + base64.b64encode(digest.digest()).decode().rstrip("=")


def _values(query: bytes) -> dict[str, str]:
    """Return each value once. If a value is repeated, the agent might read the other one."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=64)
    except ValueError:
        raise BadSignatureError("invalid signature") from None
    known = [(name, value) for name, value in pairs if name in _KNOWN]
    if len({name for name, _ in known}) != len(known):
        raise BadSignatureError("invalid signature")
    return dict(known)


def _is_ahead(expiration: str, now: float) -> bool:
    plain = expiration.isascii() and expiration.isdigit() and len(expiration) <= _EXPIRATION_DIGITS
    return plain and now <= int(expiration)
