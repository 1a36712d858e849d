"""Tokens for a sandbox, volume or upload: keyed hashes of their purpose. The server stores none."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from atoll.errors import HostError
from atoll.protocol import expiry_of, keyed_token, link_value

_SECRET_BYTES = 32


class Tokens:
    """Makes tokens and checks them.

    Args:
        secret: At least 32 secret bytes. Its holder can make every token.
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) < _SECRET_BYTES:
            raise ValueError(f"a secret has at least {_SECRET_BYTES} bytes")
        self._secret = secret

    def access(self, sandbox_id: str) -> str:
        """Return the token for programs and files in a sandbox (E2B's ``envdAccessToken``)."""
        return self._token("access", sandbox_id)

    def traffic(self, sandbox_id: str) -> str:
        """Return the token for a sandbox's other ports that are not public (E2B's ``trafficAccessToken``)."""
        return self._token("traffic", sandbox_id)

    def volume(self, volume_id: str) -> str:
        """Return the token for the files of a volume."""
        return self._token("volume", volume_id)

    def metrics(self) -> str:
        """Return the token for the metrics of the whole home."""
        return self._token("metrics")

    def upload(self, *parts: str) -> str:
        """Return the token for an upload. ``parts`` name the file, the place and the end of its validity."""
        return self._token("upload", *parts)

    def link(self, sandbox_id: str, port: int, expires_at: int) -> str:
        """Return the token that opens a port until ``expires_at``, in Unix seconds."""
        return link_value(self._secret, sandbox_id, port, expires_at)

    def opens(self, value: str, sandbox_id: str, port: int, now: float) -> bool:
        """Tell whether the value of a signed link opens a port now."""
        expires_at = expiry_of(value)
        if expires_at is None or now >= expires_at:
            return False
        return same(value, link_value(self._secret, sandbox_id, port, expires_at))

    def _token(self, *parts: str) -> str:
        return keyed_token(self._secret, *parts)


def same(given: str, wanted: str) -> bool:
    """Tell whether a client's token is the right one. The time taken does not tell where they differ."""
    return hmac.compare_digest(given.encode(errors="surrogateescape"), wanted.encode())


def bearer(headers: Mapping[str, str]) -> str | None:
    """Return the token of ``Authorization: Bearer``; None if a request has no such header."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def read_secret(directory: Path) -> bytes:
    """Return the secret in ``directory/secret``, which the first call makes. All servers of a home share it.

    Raises:
        HostError: Other users can read the file, or it is cut short.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = directory / "secret"
    if not path.exists():
        _write_once(path)
    with path.open("rb") as file:
        mode = os.fstat(file.fileno()).st_mode
        secret = file.read()
    if mode & 0o077:
        raise HostError(
            f"other users can read {path}",
            hint=f"remove it: rm {path}; the server creates a new one, and old tokens become invalid",
        )
    if len(secret) < _SECRET_BYTES:
        raise HostError(
            f"{path} is truncated",
            hint=f"remove it: rm {path}; the server creates a new one, and old tokens become invalid",
        )
    return secret


def _write_once(path: Path) -> None:
    aside = path.with_name(f".secret-{secrets.token_hex(8)}")
    with open(aside, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(secrets.token_bytes(_SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        os.link(aside, path)
    except FileExistsError:
        return  # another server was faster
    finally:
        aside.unlink()
