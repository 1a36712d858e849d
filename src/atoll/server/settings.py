"""What a server was started with."""

from __future__ import annotations

from pathlib import Path

import msgspec

from atoll.errors import InvalidSpecError

LOOPBACK = frozenset({"127.0.0.1", "::1"})
_DOMAIN_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One server's settings.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 picks a free one.
        domain: Serve ``api.DOMAIN`` and ``PORT-ID.DOMAIN``. None serves by headers and ``PORT-ID.localhost`` alone.
        tls_cert: A file with the certificate chain; None speaks plain http.
        tls_key: A file with its private key.
        tls_authority: A file with what clients of a self-signed certificate must trust.
        tls_bundle: A file with the same, and with what this host trusts anyway.
        head_timeout_s: How long a client may take for a head, and for its next request.
        body_timeout_s: How long nothing may come of a body while nothing is answered.
        env_file: Where the variables that a client needs are written.
        access_log: Where each request is noted; None is ``server/access.log`` in the home.
        images: What names of images stand for that templates start from.
    """

    host: str = "127.0.0.1"
    port: int = 0
    domain: str | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_authority: Path | None = None
    tls_bundle: Path | None = None
    head_timeout_s: float = 60.0
    body_timeout_s: float = 600.0
    env_file: Path | None = None
    access_log: Path | None = None
    images: dict[str, str] = {}

    @property
    def scheme(self) -> str:
        """``https`` or ``http``."""
        return "https" if self.tls_cert else "http"

    @property
    def public_domain(self) -> str | None:
        """The domain as clients write it, with the port where that is not the scheme's own."""
        if self.domain is None:
            return None
        return self.domain if self.port == (443 if self.tls_cert else 80) else f"{self.domain}:{self.port}"

    def check(self) -> Settings:
        """Return the settings when they make sense together.

        Raises:
            InvalidSpecError: They do not.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidSpecError(
                "a certificate and its key belong together", hint="give --tls-cert and --tls-key"
            )
        for option, limit_s in (
            ("--head-timeout", self.head_timeout_s),
            ("--body-timeout", self.body_timeout_s),
        ):
            if not limit_s >= 0.1:
                raise InvalidSpecError(f"{option} is {limit_s:g} s", hint="give at least 0.1 seconds")
        if not 0 <= self.port <= 65535:
            raise InvalidSpecError(f"port {self.port} is not between 0 and 65535")
        if self.domain is not None and (not self.domain.strip(".-") or set(self.domain) - _DOMAIN_CHARS):
            raise InvalidSpecError(
                f"{self.domain!r} is no domain name", hint="give one like sandboxes.example.com"
            )
        return self


def address_of(text: str) -> tuple[str, int]:
    """Host and port of ``HOST:PORT``, ``[V6]:PORT``, ``:PORT``, ``HOST`` or ``PORT``; the port is 0 when missing.

    Raises:
        InvalidSpecError: It is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = ("", text) if text.isdigit() else (text, "0")
    host = host.strip("[]")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidSpecError(f"cannot listen on {text!r}", hint="give HOST:PORT, like 127.0.0.1:3000")
    return host or ("127.0.0.1" if text.isdigit() else "0.0.0.0"), int(port)
