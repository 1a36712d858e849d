"""The settings of a server."""

from __future__ import annotations

import ipaddress
from pathlib import Path

import msgspec

from atoll.errors import InvalidSpecError
from atoll.policy import check_policy, closed
from atoll.types import Policy, Rule

# Listening on these addresses, a client can reach the server as localhost.
_ON_LOOPBACK = ("127.0.0.1", "::1", "0.0.0.0", "::", "localhost")  # noqa: S104
_DOMAIN_CHARS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-.")


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """A server's settings.

    Args:
        host: The address to listen on.
        port: The port to listen on; 0 picks a free one.
        domain: Serve ``api.DOMAIN`` and ``PORT-ID.DOMAIN``. None serves only by headers and
            ``PORT-ID.localhost``.
        tls_cert: A file with the certificate chain; None means plain http.
        tls_key: A file with the certificate's private key.
        tls_authority: A file with the authority that clients of a self-signed certificate must trust.
        tls_bundle: A file with the same, and with the authorities that this host already trusts.
        head_timeout_s: Seconds that a client may take for a head, and for its next request.
        body_timeout_s: Seconds that a body may be silent before the answer begins.
        env_file: The file for the variables that a client needs.
        access_log: The file that logs each request; None means ``server/access.log`` in the home.
        images: Maps names of images that templates start from to other names.
        private_ranges: Ranges of addresses that are not public, which clients may allow to their sandboxes.
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
    private_ranges: tuple[str, ...] = ()

    @property
    def scheme(self) -> str:
        """Return ``https`` or ``http``."""
        return "https" if self.tls_cert else "http"

    @property
    def public_domain(self) -> str | None:
        """Return the domain as clients write it, with the port unless it is the scheme's own."""
        if self.domain is None:
            return None
        return self.domain if self.port == (443 if self.tls_cert else 80) else f"{self.domain}:{self.port}"

    @property
    def on_loopback(self) -> bool:
        """Tell whether clients on this machine reach the server as localhost."""
        return self.host in _ON_LOOPBACK

    def check(self) -> Settings:
        """Return the settings if they fit together.

        Raises:
            InvalidSpecError: The settings do not fit together.
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
                f"{self.domain!r} is not a domain name", hint="give one like sandboxes.example.com"
            )
        for text in self.private_ranges:
            _check_private(text)
        return self


def _check_private(text: str) -> None:
    wrong = InvalidSpecError(
        f"--private-range {text} is not one that can be opened", hint="give one such as 10.1.0.0/16"
    )
    try:
        check_policy(Policy(rules=(Rule(addresses=(text,)),)))  # this refuses ranges that are partly public
    except InvalidSpecError:
        raise wrong from None
    if closed(ipaddress.ip_network(text).network_address) is None:
        raise wrong


def address_of(text: str) -> tuple[str, int]:
    """Parse ``HOST:PORT``, ``[V6]:PORT``, ``:PORT``, ``HOST`` or ``PORT``. A missing port is 0.

    Raises:
        InvalidSpecError: The text is none of these.
    """
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = ("", text) if text.isdigit() else (text, "0")
    host = host.strip("[]")
    if not port.isdigit() or int(port) > 65535:
        raise InvalidSpecError(f"cannot listen on {text!r}", hint="give HOST:PORT, like 127.0.0.1:3000")
    return host or ("127.0.0.1" if text.isdigit() else "0.0.0.0"), int(port)
