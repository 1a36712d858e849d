"""Self-signed certificates: a small authority for each domain, which can vouch for nothing else."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from atoll.errors import HostError, InvalidSpecError

_AUTHORITY_DAYS = 3650
_SERVER_DAYS = 397
_RENEWED_BEFORE = timedelta(days=30)
_LOCAL = "localhost"
_NETWORKS = ("127.0.0.0/8", "::1/128")
_ADDRESSES = ("127.0.0.1", "::1")


class Certificates(NamedTuple):
    """The files of a server's certificate.

    Args:
        cert: The server's own certificate.
        key: The certificate's private key.
        authority: The authority that clients must trust.
        bundle: The same with the authorities that this host already trusts, for variables that replace a
            client's trust.
    """

    cert: Path
    key: Path
    authority: Path
    bundle: Path


def certificates(directory: Path, domain: str | None, now: datetime | None = None) -> Certificates:
    """Return a certificate for a domain, all names below it and this machine.

    This makes or renews the certificate if needed.

    Args:
        directory: The directory of the certificate and of the authority that signed it.
        domain: The domain. None means only this machine.
        now: The time; None means the current time.

    Raises:
        HostError: A file there is not a certificate.
    """
    now = now or datetime.now(UTC)
    place = directory / (domain or _LOCAL)
    place.mkdir(mode=0o700, parents=True, exist_ok=True)
    files = Certificates(
        place / "server.pem", place / "server.key", place / "authority.pem", place / "bundle.pem"
    )
    try:
        if not _is_good(files.authority, now):
            _make_authority(files, place / "authority.key", domain, now)
            files.cert.unlink(missing_ok=True)
        if not _is_good(files.cert, now):
            _make_server(files, place / "authority.key", domain, now)
    except ValueError as error:
        raise HostError(
            f"{place} has no valid certificates: {error}", hint=f"remove it: rm -r {place}"
        ) from None
    _write(files.bundle, _trusted_here() + files.authority.read_bytes())
    return files


def check_pair(cert: Path, key: Path) -> None:
    """Refuse a certificate and a private key that cannot be used to serve.

    Raises:
        InvalidSpecError: A file cannot be read or used, or the two do not belong together. The message says
            which.
    """
    data = {path: _read(path, option) for path, option in ((cert, "--tls-cert"), (key, "--tls-key"))}
    try:
        # no question for a password, because nobody may be there to answer
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(cert, key, password=lambda: "")
    except ssl.SSLError as error:
        raise _unfit(cert, key, data) or InvalidSpecError(
            f"{cert} and {key} cannot be used together: {error.reason or error}",
            hint="give --tls-cert a chain that begins with the certificate of that key",
        ) from error


def _read(path: Path, option: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSpecError(
            f"{path} cannot be read: {error.strerror}", hint=f"give {option} a file that this user can read"
        ) from error


def _unfit(cert: Path, key: Path, data: dict[Path, bytes]) -> InvalidSpecError | None:
    """Return the fault of one of the files alone, or None."""
    try:
        x509.load_pem_x509_certificates(data[cert])
    except ValueError:
        return InvalidSpecError(
            f"{cert} holds no certificates", hint="give --tls-cert a chain of certificates in PEM"
        )
    try:
        load_pem_private_key(data[key], None)
    except TypeError:
        return InvalidSpecError(
            f"{key} has a password", hint="give --tls-key one without: openssl pkey -in FILE -out OTHER"
        )
    except (ValueError, UnsupportedAlgorithm):
        return InvalidSpecError(f"{key} holds no private key", hint="give --tls-key a private key in PEM")
    return None


def _is_good(path: Path, now: datetime) -> bool:
    if not path.exists():
        return False
    return x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc - now > _RENEWED_BEFORE


def _names(domain: str | None) -> list[str]:
    return [_LOCAL, *([domain] if domain else [])]


def _make_authority(files: Certificates, key_file: Path, domain: str | None, now: datetime) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"atoll for {domain or _LOCAL}"[:64])])
    permitted: list[x509.GeneralName] = [x509.DNSName(each) for each in _names(domain)]
    permitted += [x509.IPAddress(ipaddress.ip_network(each)) for each in _NETWORKS]
    made = (
        _begun(name, name, key.public_key(), now, _AUTHORITY_DAYS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.NameConstraints(permitted, None), critical=True)
        .sign(key, SHA256())
    )
    _write_key(key_file, key)
    _write(files.authority, made.public_bytes(Encoding.PEM))


def _make_server(files: Certificates, key_file: Path, domain: str | None, now: datetime) -> None:
    authority = x509.load_pem_x509_certificate(files.authority.read_bytes())
    signer = load_pem_private_key(key_file.read_bytes(), None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    names = _names(domain)
    named: list[x509.GeneralName] = [x509.DNSName(name) for name in names]
    # some clients reject `*.localhost`, and the whole certificate with it
    named += [x509.DNSName(f"*.{name}") for name in names if "." in name]
    named += [x509.IPAddress(ipaddress.ip_address(each)) for each in _ADDRESSES]
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[-1][:64])])
    made = (
        _begun(subject, authority.subject, key.public_key(), now, _SERVER_DAYS)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(named), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
        .sign(signer, SHA256())
    )
    _write_key(files.key, key)
    _write(files.cert, made.public_bytes(Encoding.PEM) + files.authority.read_bytes())


def _begun(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # a client's clock may be a little behind
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _trusted_here() -> bytes:
    cafile = os.environ.get("SSL_CERT_FILE") or ssl.get_default_verify_paths().cafile
    with contextlib.suppress(OSError):  # then this host trusts no authority
        if cafile:
            return Path(cafile).read_bytes().rstrip(b"\n") + b"\n"
    return b""


def _write_key(path: Path, key: ec.EllipticCurvePrivateKey) -> None:
    _write(path, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _write(path: Path, data: bytes) -> None:
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    with open(aside, "wb", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.write(data)
    aside.replace(path)
