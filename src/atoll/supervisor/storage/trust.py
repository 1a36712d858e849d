"""Finds CA certificates that the host trusts beyond those of an image (companies and CI intercept TLS)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from atoll.host import read_below

_BUNDLES = (
    "etc/ssl/certs/ca-certificates.crt",
    "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "etc/pki/tls/certs/ca-bundle.crt",
    "etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "var/lib/ca-certificates/ca-bundle.pem",
    "etc/ssl/cert.pem",
)
_BEGIN = "-----BEGIN CERTIFICATE-----"
_END = "-----END CERTIFICATE-----"
_LIMIT_BYTES = 8 << 20


def certificates(pem: str) -> dict[str, str]:
    """Each certificate's PEM block, by its base64 without line breaks, in order."""
    found = {}
    at = 0
    # A regular expression will not do: the image's maker wrote this text, and could make it backtrack for
    # very long.
    while (end := pem.find(_END, at)) >= 0:
        begin = pem.rfind(_BEGIN, at, end)
        at = end + len(_END)
        if begin >= 0 and (body := "".join(pem[begin + len(_BEGIN) : end].split())):
            found[body] = pem[begin:at]
    return found


def extra_certificates(host_pem: str, image_pem: str) -> str | None:
    """PEM of the certificates in the host's bundle that the image's lacks; None if there are none."""
    known = certificates(image_pem)
    extra = [block for body, block in certificates(host_pem).items() if body not in known]
    return "\n".join(extra) + "\n" if extra else None


def host_bundle(environ: Mapping[str, str]) -> str:
    """The host's trusted certificates as PEM: the bundle that SSL_CERT_FILE names, or the system's."""
    named = environ.get("SSL_CERT_FILE")
    candidates = [Path(named)] if named else [Path("/", path) for path in _BUNDLES]
    return next((text for path in candidates if (text := _read(path))), "")


def host_extra(lowers: Sequence[Path], environ: Mapping[str, str]) -> str | None:
    """The certificates that the host trusts beyond an image, given by its layers.

    Uses SSL_CERT_FILE, or the system's bundle.
    """
    return extra_certificates(host_bundle(environ), _bundle_of(lowers))


def _bundle_of(lowers: Sequence[Path]) -> str:
    for lower in lowers:
        for path in _BUNDLES:
            if data := read_below(lower, path, _LIMIT_BYTES):
                return data.decode("ascii", "ignore")
    return ""


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > _LIMIT_BYTES:
            return ""
        return path.read_text("ascii", "ignore")
    except OSError:
        return ""
