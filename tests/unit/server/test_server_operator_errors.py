"""What an operator gets wrong is one line that names the file, and no key is made or told before it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from atoll.errors import InvalidSpecError
from atoll.server.auth.access_log import AccessLog
from atoll.server.certificates import certificates, check_pair
from atoll.server.environment import check_env_file, client_variables, login_line, tell
from atoll.server.settings import Settings

BOUND_S = 60.0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--tls-cert", "x", "--tls-key", "y", "--domain", "d.e"], "x cannot be read: No such file"),
        (["--tls-cert", "pem", "--tls-key", "pem", "--domain", "d.e"], "pem holds no certificates"),
        (["--env-file", "nope/x"], "there is no directory nope for x"),
        (["--env-file", "."], ". is a directory"),
        (["--access-log", "nope/x"], "the access log nope/x cannot be written: No such file"),
        (["--listen", "1.2.3.4.5.6:0"], "cannot listen on 1.2.3.4.5.6 port 0"),
        (["--nonsense"], "No such option"),
        (["--head-timeout", "soon"], "'soon' is not a length of time"),
        (["--private-range", "8.8.8.0/24"], "--private-range 8.8.8.0/24 is not one that can be opened"),
        (["--private-range", "127.0.0.0/8"], "--private-range 127.0.0.0/8 is not one that can be opened"),
        (["--private-range", "10.0.0.0/7"], "--private-range 10.0.0.0/7 is not one that can be opened"),
        (["--private-range", "lan"], "--private-range lan is not one that can be opened"),
        (["--body-timeout", "0.01s"], "--body-timeout is 0.01 s (give at least 0.1 seconds)"),
    ],
)
def test_a_mistake_is_one_line_and_125_and_tells_no_key(
    tmp_path: Path, arguments: list[str], said: str
) -> None:
    (tmp_path / "pem").write_text("garbage")
    done = subprocess.run(
        [sys.executable, "-m", "atoll.server", *arguments],
        cwd=tmp_path,
        env={**os.environ, "ATOLL_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND_S,
    )
    assert (done.returncode, done.stdout) == (125, ""), done.stderr
    assert done.stderr.startswith(f"atoll: {said}")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "nope").exists()
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    assert {path.name for path in home.iterdir()} <= {"server"}, "a supervisor was started for nothing"


def test_a_certificate_and_its_key_pass(tmp_path: Path) -> None:
    files = certificates(tmp_path, "sbx.test")
    check_pair(files.cert, files.key)


def test_what_does_not_belong_together_is_refused_by_name(tmp_path: Path) -> None:
    one, other = certificates(tmp_path / "one", None), certificates(tmp_path / "other", None)
    with pytest.raises(InvalidSpecError, match="cannot be used together: KEY_VALUES_MISMATCH"):
        check_pair(one.cert, other.key)
    with pytest.raises(InvalidSpecError, match="server.pem holds no private key"):
        check_pair(one.cert, one.cert)
    with pytest.raises(InvalidSpecError, match="cannot be read: Is a directory"):
        check_pair(one.cert, tmp_path)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    files = certificates(tmp_path, None)
    key = ec.generate_private_key(ec.SECP256R1())
    files.key.write_bytes(
        key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    )
    with pytest.raises(InvalidSpecError, match="has a password"):
        check_pair(files.cert, files.key)


def test_a_device_is_not_replaced_by_variables() -> None:
    with pytest.raises(InvalidSpecError, match="not a plain file"):
        check_env_file(Path("/dev/null"))


def test_variables_are_written_for_their_owner_alone_and_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "env"
    check_env_file(path)
    tell({"E2B_API_KEY": "k"}, path)
    assert path.read_text() == capsys.readouterr().out == "E2B_API_KEY=k\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_node_trusts_the_authority_besides_and_python_a_bundle_instead() -> None:
    settings = Settings(tls_cert=Path("c"), tls_authority=Path("authority"), tls_bundle=Path("bundle"))
    variables = client_variables(settings, "k")
    assert (variables["NODE_EXTRA_CA_CERTS"], variables["SSL_CERT_FILE"]) == ("authority", "bundle")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        (Settings(host="127.0.0.1", port=8000), "atoll login http://127.0.0.1:8000"),
        (Settings(host="0.0.0.0", port=8000), "atoll login http://127.0.0.1:8000"),
        (
            Settings(host="::", port=443, domain="s.example.com", tls_cert=Path("c")),
            "atoll login https://api.s.example.com",
        ),
        (
            Settings(
                port=8443,
                domain="s.test",
                tls_cert=Path("c"),
                tls_authority=Path("/h ome/a"),
                tls_bundle=Path("b"),
            ),
            "atoll login https://api.s.test:8443 --ca '/h ome/a'",
        ),
    ],
)
def test_the_line_for_atolls_own_clients_names_the_server_and_its_authority(
    settings: Settings, line: str
) -> None:
    assert login_line(settings) == line


def test_an_access_log_makes_no_directory(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpecError, match="cannot be written: No such file"):
        AccessLog(tmp_path / "nope" / "x")
    assert list(tmp_path.iterdir()) == []
