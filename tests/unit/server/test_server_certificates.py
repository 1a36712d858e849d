from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from atoll.errors import HostError
from atoll.server.certificates import Certificates, certificates

NOW = datetime.now(UTC)


def shaken(files: Certificates, name: str) -> str:
    """Do a TLS handshake in memory with a client that trusts the authority; the agreed protocol."""
    client = ssl.create_default_context(cafile=str(files.authority))
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(files.cert, files.key)
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return str(near.version())


@pytest.mark.parametrize("name", ["sbx.test", "api.sbx.test", "80-x.sbx.test", "localhost", "127.0.0.1"])
def test_clients_that_trust_the_authority_accept_the_server(tmp_path: Path, name: str) -> None:
    assert shaken(certificates(tmp_path, "sbx.test"), name).startswith("TLS")


def test_other_names_are_not_accepted(tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        shaken(certificates(tmp_path, "sbx.test"), "evil.test")


def test_certificates_stay_until_they_near_their_end(tmp_path: Path) -> None:
    first = certificates(tmp_path, "sbx.test", NOW)
    cert, authority = first.cert.read_bytes(), first.authority.read_bytes()
    assert certificates(tmp_path, "sbx.test", NOW + timedelta(days=300)).cert.read_bytes() == cert
    later = certificates(tmp_path, "sbx.test", NOW + timedelta(days=380))
    assert later.cert.read_bytes() != cert
    assert later.authority.read_bytes() == authority


def test_keys_are_for_their_owner_alone(tmp_path: Path) -> None:
    files = certificates(tmp_path, None)
    assert files.key.stat().st_mode & 0o077 == 0
    assert files.cert.parent.stat().st_mode & 0o077 == 0


def test_what_is_no_certificate_is_said_to_be_none(tmp_path: Path) -> None:
    files = certificates(tmp_path, None)
    files.authority.write_text("x")
    with pytest.raises(HostError, match="has no valid certificates"):
        certificates(tmp_path, None)
