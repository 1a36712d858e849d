"""Egress policies of real sandboxes: a server on this host, exposed by a rule, stands for the outside."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from tests.e2e.command_line import atoll, said
from tests.homes import contents_of
from tests.waiting import until

from atoll import Audit, Sandbox, Secrets
from atoll.errors import InvalidSpecError, SecretNotFoundError
from atoll.types import HOST_NAME, Inject, Policy, Rule


class _Echo(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    credentials: ClassVar[list[str | None]] = []

    def _answer(self) -> None:
        self.credentials.append(self.headers.get("Authorization"))
        length = int(self.headers.get("Content-Length", "0"))
        body = f"{self.command} {self.path} {self.rfile.read(length).decode()}".encode()
        if self.path == "/reflect":
            body = f"you sent {self.headers.get('Authorization')}".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_PUT = _answer

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a web server on this host's loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture
def reads_only(module_home: Path, port: int) -> Iterator[Sandbox]:
    """A sandbox that may read from the server, and do nothing else."""
    rule = Rule(name="read", hosts=(HOST_NAME,), ports=(port,), methods=("GET",), paths=("/open/**",))
    with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
        yield sandbox


def curl(sandbox: Sandbox, address: str, *options: str) -> str:
    done = sandbox.exec(["curl", "-sS", "-m", "20", *options, address])
    return done.stdout + done.stderr


def test_a_rule_about_requests_lets_pass_what_it_says_and_explains_what_not(
    reads_only: Sandbox, port: int
) -> None:
    here = f"http://{HOST_NAME}:{port}"
    assert curl(reads_only, f"{here}/open/a?x=1") == "GET /open/a?x=1 "
    for address, options in ((f"{here}/open/a", ("-X", "POST", "-d", "x")), (f"{here}/shut", ())):
        refusal = json.loads(curl(reads_only, address, *options))
        assert refusal["error"] == "egress_denied"
        assert "rule read allows it" in refusal["remedy"]
    assert json.loads(curl(reads_only, f"{here}/open/../shut", "--path-as-is"))["path"] == "/shut"
    assert "Could not resolve host" in curl(reads_only, "http://example.com/")
    wanted = {("allow", "GET", "/open/a"), ("deny", "POST", "/open/a"), ("deny", "A", "")}
    decided: set[tuple[str, str, str]] = set()
    for _ in range(100):  # the edge tells once a second
        decided = {(one.action, one.method, one.path) for one in reads_only.egress.decisions()}
        if wanted <= decided:
            break
        time.sleep(0.1)
    assert wanted <= decided


def test_the_log_of_the_sandbox_tells_what_was_refused(reads_only: Sandbox) -> None:
    curl(reads_only, "http://example.com/")
    list(reads_only.egress.decisions())
    told = "".join(reads_only.logs())
    assert re.search(r"network: refused A example.com( \(\d times\))?: no rule allows example.com", told)


def test_a_policy_is_tested_by_what_decides_on_the_wire(reads_only: Sandbox, port: int) -> None:
    here = f"http://{HOST_NAME}:{port}"
    assert reads_only.egress.test("GET", f"{here}/open/a").action == "allow"
    assert reads_only.egress.test("POST", f"{here}/open/a").action == "deny"
    assert reads_only.egress.test("GET", "https://example.com/").reason == "no rule allows example.com"
    other = Policy(rules=(Rule(addresses=("192.0.2.0/24",)), Rule(hosts=("name.invalid",))))
    assert reads_only.egress.test("GET", "https://192.0.2.7/", policy=other).action == "allow"
    gone = reads_only.egress.test("GET", "https://name.invalid/", policy=other)
    assert (gone.action, gone.reason[:31]) == ("deny", "name.invalid cannot be resolved")
    assert (
        reads_only.egress.test("GET", "http://10.0.0.7/", policy="internet").reason == "10.0.0.7 is private"
    )


def test_names_and_rules_go_on_over_sleep_fork_snapshot_and_rollback(reads_only: Sandbox, port: int) -> None:
    # A program that has resolved the name once, and keeps the address.
    address = reads_only.exec(["getent", "hosts", HOST_NAME]).stdout.split()[0]
    here = f"http://{HOST_NAME}:{port}/open/a"
    kept = ("--resolve", f"{HOST_NAME}:{port}:{address}")
    reads_only.suspend()
    assert curl(reads_only, here, *kept) == "GET /open/a "
    snapshot = reads_only.snapshot()
    with reads_only.fork()[0] as fork:
        assert curl(fork, here, *kept) == "GET /open/a "
        assert json.loads(curl(fork, here, *kept, "-X", "PUT", "-d", ""))["error"] == "egress_denied"
    with Sandbox.create(snapshot) as copy:
        assert curl(copy, here, *kept) == "GET /open/a "
    reads_only.rollback(snapshot)
    assert curl(reads_only, here, *kept) == "GET /open/a "


def test_a_change_of_the_policy_is_in_force_at_once(reads_only: Sandbox, port: int) -> None:
    here = f"http://{HOST_NAME}:{port}/shut"
    assert json.loads(curl(reads_only, here))["error"] == "egress_denied"
    reads_only.set_network(Policy(rules=(Policy.expose_host(port),)))
    assert curl(reads_only, here) == "GET /shut "
    reads_only.set_network("none")
    assert curl(reads_only, here).startswith("curl: ")


def test_a_policy_that_means_nothing_is_refused_with_its_rule(reads_only: Sandbox) -> None:
    dead = Policy(rules=(Rule(hosts=("*",)), Rule(name="late", hosts=("example.com",))))
    with pytest.raises(InvalidSpecError, match=r"rule 2 \(late\) can never match: rule 1 decides before it"):
        reads_only.set_network(dead)
    with pytest.raises(InvalidSpecError, match="can never match"):
        Sandbox.create(network=dead)


def test_what_an_observing_policy_saw_becomes_a_policy(module_home: Path, port: int) -> None:
    seen = Policy(rules=(Rule(hosts=(HOST_NAME,), ports=(port,), protocol="http"),), mode="observe")
    with Sandbox.create(network=seen) as sandbox:
        here = f"http://{HOST_NAME}:{port}"
        assert curl(sandbox, f"{here}/open/a") == "GET /open/a "
        assert curl(sandbox, f"{here}/open/b", "-d", "x") == "POST /open/b x"
        # the edge tells once a second
        until(lambda: {"/open/a", "/open/b"} <= {one.path for one in sandbox.egress.decisions()})
        suggested = sandbox.egress.suggest().policy
        sandbox.set_network(suggested)
        assert curl(sandbox, f"{here}/open/a") == "GET /open/a "
        assert json.loads(curl(sandbox, f"{here}/other"))["error"] == "egress_denied"


def test_a_secret_goes_into_requests_and_never_into_the_sandbox(module_home: Path, port: int) -> None:
    value = "q7Zk-secret-93hf-value"
    Secrets.create("mail", value, hosts=(HOST_NAME,))
    inject = Inject(secret="mail", key="authorization", format="Bearer {}")
    rule = Rule(hosts=(HOST_NAME,), ports=(port,), inject=(inject,))
    here = f"http://{HOST_NAME}:{port}/inbox"
    with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
        assert curl(sandbox, here, "-H", "Authorization: Bearer mine") == "GET /inbox "
        assert _Echo.credentials[-1] == f"Bearer {value}"
        assert curl(sandbox, here.replace("inbox", "reflect")) == "you sent Bearer [secret mail]"
        assert {one.secrets for one in sandbox.egress.decisions() if one.method == "GET"} == {("mail",)}
        noted = Audit.entries(sandbox=sandbox.id, act="egress.allow")
        assert {entry.details.get("secrets") for entry in noted if "method" in entry.details} >= {"mail"}
        snapshot = sandbox.snapshot()
        sandbox.suspend()
        assert [path for path, data in contents_of(module_home) if value.encode() in data] == []
        Secrets.update("mail", value="another-value-4711")
        assert curl(sandbox, here) == "GET /inbox "
        assert _Echo.credentials[-1] == "Bearer another-value-4711"
        with Sandbox.create(snapshot) as copy:
            assert curl(copy, here) == "GET /inbox "
            assert _Echo.credentials[-1] == "Bearer another-value-4711"
        Secrets.delete("mail")
        seen = len(_Echo.credentials)
        assert "egress" in curl(sandbox, here) or "secret" in curl(sandbox, here)
        assert len(_Echo.credentials) == seen
    with pytest.raises(SecretNotFoundError):
        Sandbox.create(network=Policy(rules=(rule,)))


def test_several_secrets_go_into_one_header(module_home: Path, port: int) -> None:
    Secrets.create("app-id", "id-4711-value", hosts=(HOST_NAME,))
    Secrets.create("app-key", "key-0815-value", hosts=(HOST_NAME,))
    inject = Inject(format="{app-id}:{app-key}")
    here = f"http://{HOST_NAME}:{port}"
    policy = Policy(rules=(Rule(hosts=(HOST_NAME,), ports=(port,), inject=(inject,)),))
    with Sandbox.create(network=policy) as sandbox:
        assert curl(sandbox, f"{here}/inbox") == "GET /inbox "
        assert _Echo.credentials[-1] == "id-4711-value:key-0815-value"
        assert curl(sandbox, f"{here}/reflect") == "you sent [secret app-id]:[secret app-key]"
        Secrets.delete("app-key")
        seen = len(_Echo.credentials)
        assert "there is no secret app-key" in curl(sandbox, f"{here}/inbox")
        assert len(_Echo.credentials) == seen
    with pytest.raises(SecretNotFoundError, match="app-key"):
        Sandbox.create(network=policy)
    Secrets.delete("app-id")


def test_a_secret_goes_nowhere_but_to_the_hosts_that_it_is_bound_to(module_home: Path) -> None:
    Secrets.create("bound", "v" * 20, hosts=("api.example.com",))
    rule = Rule(hosts=("evil.example.net",), inject=(Inject(secret="bound"),))
    with pytest.raises(InvalidSpecError, match="may not be sent to 'evil.example.net'"):
        Sandbox.create(network=Policy(rules=(rule,)))


def test_the_registries_of_packages_can_be_read_by_their_clients(module_home: Path) -> None:
    with Sandbox.create(network="packages") as sandbox:
        installed = sandbox.run("pip install --no-deps --target /tmp/packages six 2>&1", timeout_s=240)
        assert "Successfully installed six" in installed.stdout, installed.stdout
        written = [one for one in sandbox.egress.decisions() if one.action == "allow" and one.method]
        assert {one.method for one in written} <= {"GET", "HEAD"}
        registries = sandbox.egress.registries()
        assert {one.host for one in written} <= set(registries["pip"])
        shown = said("policy", "show", sandbox.id).splitlines()
        assert shown[0] == "packages"
        assert any(line.split()[:2] == ["#", "pip"] for line in shown), shown
        told = json.loads(said("policy", "show", sandbox.id, "--json"))
        assert told["preset"] == "packages"
        assert {client: tuple(hosts) for client, hosts in told["registries"].items()} == registries
        sandbox.set_network("none")
        assert sandbox.egress.registries() == {}
        assert json.loads(said("policy", "show", sandbox.id, "--json")) == "none"


def test_the_command_line_sets_shows_tests_and_tells(module_home: Path, port: int, tmp_path: Path) -> None:
    file = tmp_path / "policy.toml"
    file.write_text(f'[[rules]]\nhosts = ["{HOST_NAME}"]\nports = [{port}]\nmethods = ["GET"]\n')
    said("create", "--name", "ruled", "--network", str(file))
    try:
        here = f"http://{HOST_NAME}:{port}/x"
        assert said("exec", "ruled", "--", "curl", "-sS", here) == "GET /x "
        assert 'methods = ["GET"]' in said("policy", "show", "ruled")
        assert said("policy", "test", "ruled", "GET", here).startswith("allow by rule 1")
        refused = atoll("policy", "test", "ruled", "PUT", here)
        assert (refused.returncode, refused.stdout[:4]) == (1, b"deny")
        assert said("policy", "set", "ruled", "none").strip() == "none"
        until(lambda: f"{HOST_NAME}:{port}/x" in said("policy", "log", "ruled"))
        file.write_text('[[rules]]\nhosts = ["*"]\n\n[[rules]]\nhosts = ["example.com"]\n')
        wrong = atoll("policy", "set", "ruled", str(file))
        assert wrong.returncode == 125
        assert b"rule 2 can never match" in wrong.stderr
    finally:
        said("kill", "ruled")
