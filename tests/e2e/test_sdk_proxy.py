"""Real sandboxes behind an upstream proxy of this host, which takes every name to servers of the tests."""

from __future__ import annotations

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.e2e.command_line import said
from tests.e2e.resolving_proxy import names_on
from tests.e2e.test_secrets import kill_supervisor, leaks
from tests.integration.network.web import certified
from tests.secret_forms import forms
from tests.waiting import until

from atoll import Sandbox
from atoll.errors import InvalidSpecError
from atoll.secrets import home_authority
from atoll.types import Policy, Rule, UpstreamProxy

PASSWORD = "pr0xy-of-the-tests-3141592653"
LOGIN = base64.b64encode(f"ann:{PASSWORD}".encode())


class _Web(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = f"{self.headers['Host']} {self.path}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Web)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def proxied(tmp_path: Path) -> Iterator[tuple[UpstreamProxy, list[bytes]]]:
    """The proxy as a policy has it, and what it was asked."""
    authority = home_authority(tmp_path / "outside.pem")
    certificate = certified(authority, ["web.example.com"], tmp_path / "server.pem")
    heads: list[bytes] = []
    with serving() as plain, serving(certificate) as secure, names_on({80: plain, 443: secure}, heads) as url:
        login = url.replace("//", f"//ann:{PASSWORD}@")
        yield UpstreamProxy(url=login, addresses=("127.0.0.1",)), heads


def curl(sandbox: Sandbox, address: str, *options: str) -> str:
    done = sandbox.exec(["curl", "-sS", "-m", "60", *options, address])
    return done.stdout + done.stderr


def test_requests_pass_the_proxy_over_sleep_forks_and_supervisors_and_its_password_is_nowhere(
    module_home: Path, proxied: tuple[UpstreamProxy, list[bytes]]
) -> None:
    proxy, heads = proxied
    rules = (
        Rule(name="read", hosts=("api.example.com",), methods=("GET",), paths=("/v1/**",)),
        Rule(name="web", hosts=("web.example.com",)),
    )

    def works(sandbox: Sandbox) -> None:
        """Judged outside, and moved by name alone: neither name exists but at the proxy."""
        heads.clear()
        assert curl(sandbox, "http://api.example.com/v1/a") == "api.example.com /v1/a"
        assert json.loads(curl(sandbox, "http://api.example.com/v2"))["error"] == "egress_denied"
        assert curl(sandbox, "https://web.example.com/b", "-k") == "web.example.com /b"
        asked = [head.split()[1] for head in heads]
        assert asked == [b"api.example.com:80", b"web.example.com:443"]
        assert all(b"Proxy-Authorization: Basic " + LOGIN in head for head in heads)

    with Sandbox.create(network=Policy(rules=rules, proxy=proxy)) as sandbox:
        works(sandbox)
        shown = sandbox.info().network
        assert isinstance(shown, Policy)
        assert shown.proxy is not None
        assert "ann:***@" in shown.proxy.url
        assert "ann:***@" in said("policy", "show", sandbox.id)
        with sandbox.fork()[0] as fork:
            works(fork)
        snapshot = sandbox.snapshot()
        sandbox.suspend()
        kill_supervisor(module_home)
        works(sandbox)
        with Sandbox.create(snapshot) as copy:
            works(copy)
        sandbox.set_network(shown)
        works(sandbox)
        said_of = "".join(sandbox.logs()) + said("policy", "log", sandbox.id)
        assert PASSWORD not in said_of
        assert leaks(module_home, [*forms(PASSWORD), LOGIN]) == []


def test_a_proxy_that_is_gone_is_told_in_the_log_and_a_private_one_is_not_used_by_itself(
    module_home: Path, proxied: tuple[UpstreamProxy, list[bytes]]
) -> None:
    proxy, heads = proxied
    with pytest.raises(InvalidSpecError, match=r"the proxy is at 127\.0\.0\.1, which is loopback") as refused:
        Sandbox.create(network=Policy(proxy=UpstreamProxy(url=proxy.url)))
    assert PASSWORD not in str(refused.value)
    gone = UpstreamProxy(url=f"socks5://ann:{PASSWORD}@127.0.0.1:1", addresses=proxy.addresses)
    with Sandbox.create(network=Policy(rules=(Rule(hosts=("*",)),), proxy=gone)) as sandbox:
        assert "curl: (" in curl(sandbox, "https://web.example.com/")
        why = "the upstream proxy does not connect: it cannot be reached: Connection refused"
        until(lambda: why in "".join(sandbox.logs()))
        sandbox.set_network(Policy(rules=(Rule(hosts=("*",)),), proxy=proxy))
        assert curl(sandbox, "https://web.example.com/c", "-k") == "web.example.com /c"
    assert len(heads) == 1
