"""What the SDK tells the audit log, beside its calls."""

from __future__ import annotations

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import run
from typing import Any

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor, Handler, process, sent

from atoll import AsyncSandbox, Sandbox
from atoll.sdk._telling import Digest, Teller, code_line

TOLD = ("POST", f"/v1/sandboxes/{SANDBOX_ID}/told")
FILE = {
    "name": "x",
    "path": "/home/user/x",
    "kind": "file",
    "size_bytes": 5,
    "mode": 420,
    "owner": "user",
    "group": "user",
    "modified_at": 1.0,
}


class Heard:
    """The lines that the fake was told."""

    def __init__(self, supervisor: FakeSupervisor) -> None:
        self.requests: list[dict[str, Any]] = []
        self.status = 204
        supervisor.api.routes[TOLD] = self._take

    def _take(self, handler: Handler) -> None:
        if self.status != 204:
            handler.send_json({"code": "no_space", "message": "full"}, self.status)
            return
        self.requests.append(sent(handler))
        handler.send_nothing()

    @property
    def lines(self) -> list[dict[str, Any]]:
        return [line for request in self.requests for line in request["lines"]]


@pytest.fixture
def heard(supervisor: FakeSupervisor) -> Heard:
    supervisor.agent.routes["POST", "/atoll/processes"] = process()
    return Heard(supervisor)


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_programs_are_told_together_and_before_the_kill(heard: Heard, sandbox: Sandbox) -> None:
    sandbox.exec(["git", "push", "a b"], user="root")
    sandbox.run("echo hi")
    sandbox.processes.start("sleep 9")
    assert heard.requests == []
    sandbox.kill()
    (request,) = heard.requests
    told = [{name: value for name, value in line.items() if name != "at"} for line in request["lines"]]
    assert told == [
        {"act": "command.started", "argv": ["git", "push", "a b"], "user": "root"},
        {"act": "command.started", "line": "echo hi"},
        {"act": "command.started", "line": "sleep 9"},
    ]
    assert abs(request["lines"][0]["at"] - time.time()) < 60


def test_an_async_program_tells_as_well(heard: Heard, sandbox: Sandbox) -> None:
    async def work() -> None:
        other = await AsyncSandbox.connect("alice")
        await other.run("echo hi")
        await other.kill()

    asyncio.run(work())
    assert [line["line"] for line in heard.lines] == ["echo hi"]


def test_lines_wait_while_they_cannot_be_noted_and_what_is_too_much_is_counted(
    heard: Heard, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("atoll.sdk._telling._AGAIN_S", 0.01)
    monkeypatch.setattr("atoll.sdk._telling._TOGETHER_S", 0.01)
    heard.status = 507
    teller = Teller.of_process()
    for number in range(1200):
        teller.add(sandbox._api.place.where, SANDBOX_ID, code_line(str(number)))
    time.sleep(0.1)
    heard.status = 204
    until(lambda: len(heard.lines) + sum(each.get("dropped", 0) for each in heard.requests) == 1200)
    told = [int(line["line"]) for line in heard.lines]
    assert told[:1000] == list(range(1000))
    # Room that comes meanwhile is for those that come then.
    assert told == sorted(set(told))
    assert len(heard.lines) >= 1000
    assert max(len(each["lines"]) for each in heard.requests) <= 200


def test_nobody_waits_for_a_supervisor_that_takes_no_lines(heard: Heard, sandbox: Sandbox) -> None:
    heard.status = 507
    teller, where = Teller.of_process(), sandbox._api.place.where
    teller.add(where, SANDBOX_ID, code_line("x"))
    began = time.monotonic()
    teller.finish()
    teller.finish("another")
    assert Teller.has(SANDBOX_ID)
    assert not Teller.has("another")
    assert time.monotonic() - began < 1.5
    heard.status = 204
    until(lambda: heard.lines or teller.finish())


def test_a_long_line_is_cut_and_a_gone_sandbox_is_told_nothing(heard: Heard, sandbox: Sandbox) -> None:
    teller, where = Teller.of_process(), sandbox._api.place.where
    teller.add(where, "another", code_line("x"))
    teller.add(where, SANDBOX_ID, code_line("x" * 100_000))
    teller.finish()
    assert [len(line["line"]) for line in heard.lines] == [16 << 10]


def test_a_process_tells_what_is_left_before_it_ends(heard: Heard, sandbox: Sandbox) -> None:
    code = "from atoll import Sandbox; Sandbox.connect('alice').run('echo last')"
    run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": ":".join(sys.path)})
    assert [line["line"] for line in heard.lines] == ["echo last"]


@pytest.mark.parametrize("size", [0, 5, 1 << 20])
def test_what_passes_is_hashed_beside_it(size: int) -> None:
    data = os.urandom(size)
    with Digest() as digest:
        for start in range(0, size, 65536):
            digest.add(data[start : start + 65536])
        digest.complete = True
    assert (digest.size, digest.hashed()) == (size, hashlib.sha256(data).hexdigest())
    with Digest() as broken:
        broken.add(data)
    assert broken.hashed() is None


def test_files_are_told_with_size_and_hash(
    heard: Heard, sandbox: Sandbox, supervisor: FakeSupervisor, tmp_path: Path
) -> None:
    def got(handler: Handler) -> None:
        handler.begin_stream()
        handler.chunk(b"hello")
        handler.chunk(b"")

    supervisor.agent.routes["GET", "/atoll/file"] = got
    supervisor.agent.routes["PUT", "/atoll/file"] = {"file": FILE}
    sandbox.files.read("x")
    list(sandbox.files.read_stream("x"))
    sandbox.files.write("x", "hello")
    sandbox.files.write("x", [b"hel", b"lo"])
    (tmp_path / "local").write_bytes(b"hello")
    sandbox.files.upload(tmp_path / "local", "x")
    Teller.of_process().finish()
    acts = [line["act"] for line in heard.lines]
    assert acts == ["file.read"] * 2 + ["file.written"] * 3
    assert {line["sha256"] for line in heard.lines} == {hashlib.sha256(b"hello").hexdigest()}
    assert {line["bytes"] for line in heard.lines} == {5}
    assert {line["path"] for line in heard.lines} == {"x"}  # not what the guest says
