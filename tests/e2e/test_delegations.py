"""What real sandboxes may do under their delegations, and for how long."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import httpx
import pytest
from tests.e2e.command_line import atoll, said
from tests.e2e.server import Server
from tests.waiting import until

from atoll import (
    Audit,
    DelegationSpec,
    Hosting,
    Inject,
    Keys,
    Policy,
    Rule,
    Sandbox,
    Secrets,
    Snapshot,
    Teams,
)
from atoll.errors import DelegationError, DelegationExpiredError
from atoll.types import HOST_NAME, Delegation


class _Echo(BaseHTTPRequestHandler):
    credentials: ClassVar[list[str | None]] = []

    def do_GET(self) -> None:
        self.credentials.append(self.headers.get("Authorization"))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a web server on this host that keeps the credentials that it got."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Echo)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def of(sandbox: Sandbox) -> Delegation:
    assert sandbox.delegation is not None
    return sandbox.delegation


def test_a_copy_acts_under_a_child_that_has_no_more(module_home: Path) -> None:
    del module_home
    spec = DelegationSpec(on_behalf_of="Ada Lovelace", scopes=("network", "fork"))
    with Sandbox.create(hosting=Hosting(delegation=spec)) as sandbox, Sandbox.create(network="none") as other:
        assert of(other).is_root
        assert (of(sandbox).parent_uid, of(sandbox).audience) == (of(other).uid, sandbox.id)
        assert sandbox.info().delegation == of(sandbox)
        (copy,) = sandbox.fork(delegation=DelegationSpec(scopes=()))
        with copy:
            assert (of(copy).parent_uid, of(copy).on_behalf_of) == (of(sandbox).uid, "Ada Lovelace")
            assert copy.info().network == "none"
            for refused in (lambda: copy.set_network("internet"), copy.fork):
                with pytest.raises(DelegationError, match="needs the scope"):
                    refused()
        with pytest.raises(DelegationError, match="cannot give the scope secrets"):
            sandbox.fork(delegation=DelegationSpec(scopes=("secrets",)))
        sandbox.snapshot("kept")
        with pytest.raises(DelegationError, match="cannot give the scope volumes"):
            Sandbox.create(Snapshot("kept"), hosting=Hosting(delegation=DelegationSpec(scopes=("volumes",))))
    acts = [entry.act for entry in Audit.entries(delegation=of(copy).uid)]
    assert acts == [
        "sandbox.copied",
        "sandboxes.network",
        "sandboxes.fork",
        "sandbox.killed",
        "sandboxes.delete",
    ]


def test_the_command_line_makes_shows_and_finds_delegations(module_home: Path) -> None:
    del module_home
    options = ("--on-behalf-of", "Ada", "--scope", "network", "--scope", "fork", "--expires", "1h")
    made = said("create", "--name", "told", *options)
    copy = said("fork", "told", "--scope", "none")
    shown = next(line for line in said("info", made).splitlines() if line.startswith("delegated"))
    mine, its = (Sandbox.get(ref).delegation for ref in (made, copy))
    assert mine is not None and its is not None
    assert f"{mine.uid} by user " in shown
    assert " for Ada: network fork, until " in shown
    assert f"child of {mine.uid}" in said("info", copy)
    told = [
        json.loads(line) for line in said("audit", "query", "--delegation", its.uid, "--json").splitlines()
    ]
    assert {entry["sandbox_id"] for entry in told} == {copy}
    assert f"under={its.uid}" in said("audit", "query", "--delegation", its.uid)
    done = atoll("fork", copy)
    assert (done.returncode, b"needs the scope fork" in done.stderr) == (125, True)
    said("kill", made, copy)


def test_a_copy_without_the_scope_gets_no_secret(module_home: Path, port: int) -> None:
    del module_home
    Secrets.create("delegated", "swordfish-0451", hosts=[HOST_NAME])
    rule = Rule(hosts=(HOST_NAME,), ports=(port,), inject=(Inject(secret="delegated"),))
    ask = f"curl -s http://{HOST_NAME}:{port}/"
    with Sandbox.create(network=Policy(rules=(rule,))) as sandbox:
        sandbox.run(ask)
        assert _Echo.credentials == ["swordfish-0451"]
        (copy,) = sandbox.fork(delegation=DelegationSpec(scopes=("network",)))
        with copy:
            assert "there is no secret delegated" in copy.run(ask).stdout
            assert _Echo.credentials == ["swordfish-0451"]


def test_at_its_end_connections_break_and_the_sandbox_sleeps_for_good(module_home: Path) -> None:
    del module_home
    spec = DelegationSpec(expires_in_s=8)
    with socket.create_server(("127.0.0.1", 0)) as server:
        rule = Rule(hosts=(HOST_NAME,), ports=(server.getsockname()[1],))
        hosting = Hosting(delegation=spec)
        with Sandbox.create(network=Policy(rules=(rule,)), hosting=hosting) as sandbox:
            sandbox.processes.start(f"exec 3<>/dev/tcp/{HOST_NAME}/{server.getsockname()[1]}; sleep 600 <&3")
            connection, _ = server.accept()
            connection.settimeout(30)
            with connection:
                with contextlib.suppress(ConnectionResetError):
                    assert connection.recv(1) == b""
            until(lambda: sandbox.info().state == "suspended")
            assert sandbox.info().sleep_cause == "delegation"
            for use in (lambda: sandbox.run("true"), sandbox.resume, sandbox.fork):
                with pytest.raises(DelegationExpiredError, match=of(sandbox).uid):
                    use()


def test_a_key_acts_for_its_team_alone(module_home: Path, server: Server) -> None:
    del module_home
    keys = {}
    for team in ("reef", "kelp"):
        Teams.create(team)
        keys[team] = Keys.create(team, "for a test")
    headers = {"X-API-Key": keys["reef"].key}
    with httpx.Client(base_url=server.url, headers=headers, timeout=60) as reef:
        made = reef.post("/sandboxes", json={"templateID": "base", "timeout": 600}).json()["sandboxID"]
        mine = Sandbox.get(made).delegation
        assert mine is not None
        assert (mine.issuer, mine.is_root) == (keys["reef"].info.key_id, True)
        asked = {"delegation": {"parent_uid": mine.uid, "scopes": ["network"]}, "lifecycle": {"ttl_s": 600}}
        child = reef.post("/atoll/v1/sandboxes", json=asked).json()
        assert (child["team"], child["delegation"]["parent_uid"]) == ("reef", mine.uid)
        own = reef.get("/atoll/v1/audit?team=kelp").json()["entries"]
        assert {entry["team"] for entry in own} == {"reef"}
        assert child["delegation"]["uid"] in {entry.get("delegation") for entry in own}
        assert reef.post("/atoll/v1/audit/verify").status_code == 404
        other = httpx.post(
            f"{server.url}/atoll/v1/sandboxes",
            json={"delegation": {"parent_uid": child["delegation"]["uid"]}},
            headers={"X-API-Key": keys["kelp"].key},
            timeout=60,
        )
        assert (other.status_code, other.json()["code"]) == (403, "delegation")
        for one in (made, child["sandbox_id"]):
            reef.delete(f"/sandboxes/{one}")
