"""Other machines reach programs and files through `atoll serve`, and nothing else of the agent."""

from __future__ import annotations

import hashlib
import socket
from pathlib import Path

import httpx
import pytest
from e2b import CommandExitException
from tests.e2e.gateway.clients import (
    AGENT,
    BOUND_S,
    headers_of,
    remote,
    token_of,
)
from tests.e2e.server import Server
from tests.waiting import until

from atoll import Audit, Hosting, Sandbox
from atoll.types import AuditEntry


def test_the_e2b_sdk_runs_programs_and_moves_files(server: Server, box: Sandbox, module_home: Path) -> None:
    there = remote(server, box, module_home)
    assert there.commands.run("echo out; echo err >&2", timeout=BOUND_S).stdout == "out\n"
    with pytest.raises(CommandExitException):
        there.commands.run("exit 7", timeout=BOUND_S)
    there.files.write("/tmp/größe", "text")
    assert there.files.read("/tmp/größe") == "text"
    assert there.is_running()


def test_the_audit_log_has_what_the_e2b_sdk_does(server: Server, box: Sandbox, module_home: Path) -> None:
    there = remote(server, box, module_home)
    there.commands.run("echo once, for the log", timeout=BOUND_S)
    there.files.write("/tmp/logged", "text")
    assert there.files.read("/tmp/logged") == "text"

    def told(act: str, part: str) -> list[AuditEntry]:
        return [entry for entry in Audit.entries(sandbox=box.id, act=act) if part in str(entry.details)]

    until(lambda: told("file.read", "logged"))
    (ran,) = told("command.started", "once, for the log")
    assert ran.details["argv"] == "/bin/bash -l -c 'echo once, for the log'"
    (written,), (read,) = told("file.written", "logged"), told("file.read", "logged")
    digest = hashlib.sha256(b"text").hexdigest()
    for entry in (written, read):
        assert (entry.details["bytes"], entry.details["sha256"]) == (4, digest)
    assert {entry.source for entry in (ran, written, read)} == {"client"}
    assert {entry.caller for entry in (ran, written, read)} == {f"a client of {ran.team} at 127.0.0.1"}


def test_a_command_is_given_input_while_it_runs(server: Server, box: Sandbox, module_home: Path) -> None:
    there = remote(server, box, module_home)
    command = there.commands.run("read line; echo got $line", background=True, stdin=True, timeout=BOUND_S)
    there.commands.send_stdin(command.pid, "word\n")
    assert command.wait().stdout == "got word\n"


def test_a_large_file_goes_both_ways(agent: httpx.Client, box: Sandbox) -> None:
    data = bytes(range(256)) * (1 << 16)
    sent = agent.post(
        "/files?path=/tmp/large", content=data, headers={"content-type": "application/octet-stream"}
    )
    assert sent.status_code == 200
    assert agent.get("/files?path=/tmp/large").content == data
    assert agent.get("/files?path=/tmp/large", headers={"range": "bytes=5-7"}).content == data[5:8]
    pieces = (data[at : at + 100_000] for at in range(0, len(data), 100_000))
    sent = agent.post(
        "/files?path=/tmp/chunks", content=pieces, headers={"content-type": "application/octet-stream"}
    )
    assert sent.status_code == 200
    assert box.files.read_bytes("/tmp/chunks") == data


def test_without_the_token_nothing_of_the_agent_answers_but_its_health(server: Server, box: Sandbox) -> None:
    with httpx.Client(base_url=server.url, headers=headers_of(box.id, AGENT)) as nobody:
        assert nobody.get("/health").status_code == 204
        for answer in (
            nobody.get("/metrics"),
            nobody.get("/envs"),
            nobody.post("/process.Process/List", json={}),
            nobody.get("/metrics", headers={"x-access-token": "wrong"}),
        ):
            assert answer.status_code == 401
            assert answer.json()["message"].startswith("unauthorized access")
        missing = nobody.get("/files?path=/etc/passwd")
        assert (missing.status_code, missing.json()["message"]) == (401, "missing signature query parameter")
        wrong = nobody.get("/files?path=/etc/passwd", headers={"x-access-token": "wrong"})
        assert wrong.json()["message"] == "access token present in header but does not match"


@pytest.mark.parametrize(
    "path",
    [
        "/init",
        "/freeze",
        "/fsfreeze",
        "/atoll/init",
        "/atoll/exec",
        "/%61toll/init",
        "//atoll/init",
        "/./init",
    ]
    + ["/process.Process/../atoll/init", "/process.Process/%2e%2e/init", "/health/", "/files/../init"],
)
def test_what_the_supervisor_asks_of_the_agent_nobody_else_can(
    server: Server, box: Sandbox, path: str, module_home: Path
) -> None:
    token = token_of(box.id, module_home)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {box.id}\r\nE2b-Sandbox-Port: {AGENT}\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S) as raw:
        raw.sendall(f"{head}X-Access-Token: {token}\r\nContent-Length: 0\r\n\r\n".encode())
        assert raw.recv(65536).startswith(b"HTTP/1.1 404 ")


def test_signed_addresses_open_one_file_and_need_no_sandbox_named(
    server: Server, box: Sandbox, module_home: Path
) -> None:
    there = remote(server, box, module_home)
    there.files.write("/tmp/signed", "content")
    address = there.download_url("/tmp/signed", user="user", use_signature_expiration=3600)
    assert box.id not in address
    assert httpx.get(address).text == "content"
    assert httpx.get(address.replace("signed", "other")).json()["message"] == "invalid signature"
    # a header must not name another user than was signed
    assert httpx.get(address, headers={"authorization": "Basic cm9vdDo="}).text == "content"
    upload = there.upload_url("/tmp/uploaded", user="user", use_signature_expiration=3600)
    assert httpx.post(upload, files={"file": b"from far"}).status_code == 200
    assert there.files.read("/tmp/uploaded") == "from far"
    expired = there.download_url("/tmp/signed", user="user", use_signature_expiration=-10)
    assert httpx.get(expired).json() == {"message": "signature is already expired", "code": 401}


def test_a_sandbox_that_says_so_needs_no_token(server: Server) -> None:
    with Sandbox.create(hosting=Hosting(team="default", attributes={"e2b_secure": "0"})) as open_to_all:
        headers = headers_of(open_to_all.id, AGENT)
        assert httpx.get(f"{server.url}/metrics", headers=headers, timeout=BOUND_S).status_code == 200


def test_a_sandbox_of_no_team_is_for_this_machine_alone(server: Server) -> None:
    with Sandbox.create() as local:
        answer = httpx.get(f"{server.url}/health", headers=headers_of(local.id, AGENT))
        assert (answer.status_code, answer.json()["message"]) == (502, "The sandbox was not found")
