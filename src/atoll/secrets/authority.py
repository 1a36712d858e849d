"""The home's certificate authority, which signs the edge's certificates for sandboxes."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from atoll.host import write_atomically

_VALID_DAYS = 3650
_RENEWED_BEFORE_DAYS = 365
# A guest's clock may be behind: it slept, or its host's battery is empty.
_BACKDATED_DAYS = 30
_CERTIFICATE, _KEY = "-----BEGIN CERTIFICATE-----", "-----BEGIN PRIVATE KEY-----"


@dataclass(frozen=True)
class Authority:
    """A certificate that sandboxes trust, and the key that stays on the host. Both are PEM."""

    certificate: str
    key: str


def home_authority(file: Path) -> Authority:
    """Return the authority in a file, made now if there is none or it ends within a year.

    Raises:
        OSError: It cannot be read or written.
    """
    with contextlib.suppress(FileNotFoundError, ValueError):
        text = file.read_text("ascii")
        age_s = time.time() - file.stat().st_mtime
        begin, end = text.index(_CERTIFICATE), text.index(_KEY)
        if age_s < (_VALID_DAYS - _RENEWED_BEFORE_DAYS) * 86_400:
            return Authority(text[begin:end], text[end:])
    made = _make()
    # Write both to one file, so that they always belong together.
    write_atomically(file, f"{made.certificate}{made.key}".encode(), mode=0o600)
    return made


def _make() -> Authority:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    # Two homes on one host have authorities with different names, so nobody takes one for the other.
    text = f"atoll sandboxes {os.urandom(4).hex()}"
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])
    now = datetime.now(UTC)
    usage = x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=_BACKDATED_DAYS))
        .not_valid_after(now + timedelta(days=_VALID_DAYS))
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(usage, critical=True)
        .sign(key, SHA256())
    )
    return Authority(
        certificate.public_bytes(Encoding.PEM).decode(),
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode(),
    )
