"""`atoll serve --tls self-signed --domain`: wildcard names, h2, and clients that trust its authority."""

from __future__ import annotations

import os
import re
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from e2b import ConnectionConfig
from e2b import Sandbox as RemoteSandbox
from packaging.version import Version
from tests.e2e.resolving_proxy import names_on
from tests.e2e.server import Server, serving

from atoll import Hosting, Sandbox
from atoll.server.tokens import Tokens, read_secret

BOUND_S = 60.0
DOMAIN = "sbx.test"


@pytest.fixture(scope="module")
def tls_server(module_home: Path) -> Iterator[Server]:
    del module_home
    with serving("--domain", DOMAIN, "--tls", "self-signed", "--listen", "127.0.0.1:0") as running:
        yield running


@pytest.fixture(scope="module")
def proxy(tls_server: Server) -> Iterator[str]:
    with names_on(tls_server.port) as address:
        yield address


@pytest.fixture(scope="module")
def box(tls_server: Server) -> Iterator[Sandbox]:
    del tls_server
    with Sandbox.create(hosting=Hosting(team="default")) as made:
        made.files.write("/tmp/site/index.html", "served")
        made.processes.start(["python3", "-m", "http.server", "-d", "/tmp/site", "8000"])
        made.run("until ss -ltn | grep -q LISTEN.*:8000; do sleep 0.1; done", timeout_s=BOUND_S)
        yield made


@pytest.fixture
def client(tls_server: Server, proxy: str) -> Iterator[httpx.Client]:
    trusted = ssl.create_default_context(cafile=tls_server.variables["SSL_CERT_FILE"])
    with httpx.Client(http2=True, verify=trusted, proxy=proxy, timeout=BOUND_S) as made:
        yield made


def test_what_a_client_needs_is_told(tls_server: Server) -> None:
    assert tls_server.variables["E2B_DOMAIN"] == f"{DOMAIN}:{tls_server.port}"
    trusted = Path(tls_server.variables["NODE_EXTRA_CA_CERTS"])
    assert trusted.read_bytes() in Path(tls_server.variables["SSL_CERT_FILE"]).read_bytes()
    assert f"Clients must trust {trusted}:" in tls_server.log.read_text()


def told_by(server: Server, words: str) -> str:
    """What the server has said, once it has said these words."""
    end = time.monotonic() + BOUND_S
    while words not in (told := server.log.read_text()):
        assert time.monotonic() < end, told
        time.sleep(0.05)
    return told


# In a process of its own: the SDK reads once in each which certificates it trusts.
USE_SDK = """
from e2b import Sandbox
made = Sandbox.create(timeout=120)
try:
    print(made.commands.run("echo $((6 * 7))").stdout, end="")
finally:
    made.kill()
"""


def test_a_domain_without_an_address_is_told_and_the_way_that_is_told_works_for_the_sdk(
    tls_server: Server,
) -> None:
    told = told_by(tls_server, "leave E2B_DOMAIN unset")
    assert f"api.{DOMAIN} and *.{DOMAIN} have no address on this machine" in told
    assert f"On this machine https://localhost:{tls_server.port} reaches this server too." in told
    variables = dict(re.findall(r"(E2B_[A-Z_]+_URL)=(\S+)", told))
    assert set(variables) == {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL"}
    own = ("E2B_API_KEY", "SSL_CERT_FILE")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("E2B_")}
    environ = {**kept, **variables, **{name: tls_server.variables[name] for name in own}}
    done = subprocess.run(
        [sys.executable, "-c", USE_SDK], env=environ, capture_output=True, timeout=240, check=False
    )
    assert (done.stdout, done.returncode) == (b"42\n", 0), done.stderr.decode()


def test_the_api_and_ports_have_names_of_their_own_over_h2(
    tls_server: Server, box: Sandbox, client: httpx.Client
) -> None:
    api = client.get(f"https://api.{DOMAIN}:{tls_server.port}/health")
    assert (api.status_code, api.http_version) == (200, "HTTP/2")
    page = client.get(f"https://8000-{box.id}.{DOMAIN}:{tls_server.port}/")
    assert (page.text, page.http_version) == ("served", "HTTP/2")
    missing = client.get(f"https://8000-{'a' * 20}.{DOMAIN}:{tls_server.port}/")
    assert (missing.status_code, missing.json()["message"]) == (502, "The sandbox was not found")
    assert client.get(f"https://nonsense.{DOMAIN}:{tls_server.port}/").status_code == 400


def test_bodies_without_a_length_go_through_h2(
    tls_server: Server, box: Sandbox, client: httpx.Client, module_home: Path
) -> None:
    token = Tokens(read_secret(module_home / "server")).access(box.id)
    agent = f"https://49983-{box.id}.{DOMAIN}:{tls_server.port}"
    headers = {"x-access-token": token, "content-type": "application/octet-stream"}
    data = bytes(range(256)) * 4000
    pieces = (data[at : at + 50_000] for at in range(0, len(data), 50_000))
    sent = client.post(f"{agent}/files?path=/tmp/sent", content=pieces, headers=headers)
    assert (sent.status_code, sent.http_version) == (200, "HTTP/2")
    assert client.get(f"{agent}/files?path=/tmp/sent", headers=headers).content == data


def test_the_e2b_sdk_finds_a_sandbox_by_its_name(
    tls_server: Server, box: Sandbox, proxy: str, module_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("E2B_DEBUG", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", tls_server.variables["SSL_CERT_FILE"])
    token = Tokens(read_secret(module_home / "server")).access(box.id)
    domain = tls_server.variables["E2B_DOMAIN"]
    there = RemoteSandbox(
        sandbox_id=box.id,
        sandbox_domain=domain,
        envd_version=Version("0.6.13"),
        envd_access_token=token,
        traffic_access_token=None,
        connection_config=ConnectionConfig(
            api_key=tls_server.key,
            domain=domain,
            proxy=proxy,
            extra_sandbox_headers={"X-Access-Token": token},
        ),
    )
    assert there.get_host(8000) == f"8000-{box.id}.{domain}"
    assert there.commands.run("echo over tls", timeout=BOUND_S).stdout == "over tls\n"
    there.files.write("/tmp/a", "text")
    assert there.files.read("/tmp/a") == "text"
    with httpx.Client(verify=ssl.create_default_context(), proxy=proxy, timeout=BOUND_S) as plain:
        assert plain.get(there.download_url("/tmp/a", user="user")).text == "text"
