"""Signed addresses of files: whoever has one may read or write that file, without the token that signed it."""

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
    """A signed address does not hold; the message is what E2B's own agent says."""


def sign(path: str, operation: Operation, username: str, token: str, expiration: str) -> str:
    """The signature of an address; ``expiration`` is Unix seconds, or empty for one that never ends."""
    parts = [path, operation, username, token, *([expiration] if expiration else [])]
    digest = hashlib.sha256(":".join(parts).encode(errors="surrogateescape")).digest()
    return "v1_" + base64.b64encode(digest).decode().rstrip("=")


def is_signed(query: bytes) -> bool:
    """Whether there is a signature at all."""
    return b"signature=" in query


def checked(query: bytes, operation: Operation, token: str, now: float) -> bytes:
    """The query that the agent may see of a signed address: what was signed, spelled in the one plain way.

    Raises:
        BadSignatureError: It was signed for something else, by somebody else, or for a time that is over.
    """
    values = _values(query)
    signature = values.get("signature", "")
    if not signature:
        raise BadSignatureError("missing signature query parameter")
    path, username = values.get("path", ""), values.get("username", "")
    expiration = values.get("signature_expiration", "")
    if not same(signature, sign(path, operation, username, token, expiration)):
        raise BadSignatureError("invalid signature")
    if expiration and not _is_ahead(expiration, now):
        raise BadSignatureError("signature is already expired")
    seen = {name: value for name, value in (("path", path), ("username", username)) if value}
    return urlencode(seen).encode()


def _values(query: bytes) -> dict[str, str]:
    """Each value once: of two, the agent might see the other one."""
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
