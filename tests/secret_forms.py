"""The forms in which a secret may lie somewhere."""

from __future__ import annotations

import base64
from urllib.parse import quote


def forms(value: str) -> list[bytes]:
    """A value as it may lie somewhere."""
    raw = value.encode()
    return [
        raw,
        base64.b64encode(raw).rstrip(b"="),
        base64.urlsafe_b64encode(raw).rstrip(b"="),
        raw.hex().encode(),
        raw.hex().upper().encode(),
        quote(value, safe="").encode(),
    ]
