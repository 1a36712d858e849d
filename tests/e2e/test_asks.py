"""A rule asks about requests: a person, a function or nobody answers. A server on this host stands for the outside."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from tests.e2e.command_line import atoll, said
from tests.waiting import until

from atoll import Asks, Audit, Lifecycle, Sandbox, Secrets, Supervisor
from atoll.errors import AskAnswerError
from atoll.types import HOST_NAME, Answer, Ask, Inject, Policy, Rule


class _Bank(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    got: ClassVar[list[tuple[str, str, str | None]]] = []

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0"))).decode()
        self.got.append((self.path, body, self.headers.get("Authorization")))
        self.send_response(200)
        self.send_header("Content-Length", "4")
        self.end_headers()
        self.wfile.write(b"paid")

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """The port of a bank on this host's loopback interface."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Bank)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


def policy(port: int, **more: object) -> Policy:
    return Policy(rules=(Rule(name="pay", action="ask", hosts=(HOST_NAME,), ports=(port,), **more),))  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def payer(module_home: Path, port: int) -> Iterator[Sandbox]:
    Secrets.create("bank", "s3cret-of-the-bank")
    inject = (Inject(secret="bank", format="Bearer {}"),)
    with Sandbox.create(network=policy(port, inject=inject), name="payer") as sandbox:
        yield sandbox


def pay(sandbox: Sandbox, port: int, path: str, body: str = "100") -> str:
    line = f"curl -sS -m 60 -w ' %{{http_code}}' -d '{body}' http://{HOST_NAME}:{port}{path}"
    return sandbox.run(line, timeout_s=90).stdout


def paid(path: str) -> list[tuple[str, str, str | None]]:
    return [one for one in _Bank.got if one[0] == path]


def test_nobody_listens_and_the_agent_reads_why(payer: Sandbox, port: int) -> None:
    answer = pay(payer, port, "/nobody")
    refusal = json.loads(answer.rpartition(" ")[0])
    assert (refusal["error"], refusal["rule"]) == ("ask_nobody", "pay")
    assert "nobody is there" in refusal["message"]
    assert paid("/nobody") == []


def test_a_function_approves_one_request_and_denies_another_with_a_sentence(
    payer: Sandbox, port: int
) -> None:
    seen: list[Ask] = []

    def decide(ask: Ask) -> bool | Answer:
        seen.append(ask)
        if ask.path == "/small":
            return True
        return Answer(digest=ask.digest, allow=False, reason="Ask for less than 100 euros.")

    with payer.on_ask(decide):
        assert pay(payer, port, "/small") == "paid 200"
        refusal = json.loads(pay(payer, port, "/large").rpartition(" ")[0])
    assert refusal["error"] == "ask_denied"
    assert "Ask for less than 100 euros." in refusal["message"]
    assert paid("/small") == [("/small", "100", "Bearer s3cret-of-the-bank")]
    assert paid("/large") == []
    assert [(ask.method, ask.path, ask.body, ask.sandbox_name) for ask in seen] == [
        ("POST", "/small", b"100", "payer"),
        ("POST", "/large", b"100", "payer"),
    ]
    assert "s3cret" not in repr(seen)


def test_a_person_approves_by_the_command_line_and_the_log_tells_of_it(payer: Sandbox, port: int) -> None:
    with payer.on_ask(lambda ask: None):
        background = payer.processes.start(
            ["curl", "-sS", "-m", "60", "-d", "\x1b[2J", f"http://{HOST_NAME}:{port}/person"]
        )
        until(lambda: Asks.list(sandbox="payer"))
        (ask,) = Asks.list()
        card = said("asks")
        assert f"ask {ask.ask_id}: sandbox payer" in card
        assert "\x1b" not in card and "  | \\x1b[2J" in card
        approved = atoll("approve", ask.ask_id)
        assert approved.returncode == 0, approved.stderr
        assert b"allowed" in approved.stderr
        background.wait()
        late = atoll("deny", ask.ask_id)
        assert late.returncode == 125 and b"has ended: allowed" in late.stderr
    assert [body for _, body, _ in paid("/person")] == ["\x1b[2J"]
    acts = [entry.act for entry in Audit.entries(act="ask") if entry.details.get("ask") == ask.ask_id]
    assert acts == ["ask.begun", "ask.allowed"]


def test_an_approval_for_ten_minutes_lets_the_next_ones_pass(payer: Sandbox, port: int) -> None:
    def decide(ask: Ask) -> Answer:
        asked.append(ask)
        return Answer(digest=ask.digest, allow=True, for_s=600)

    asked: list[Ask] = []
    with payer.on_ask(decide):
        assert [pay(payer, port, "/often", body) for body in "123"] == ["paid 200"] * 3
    assert len(asked) == 1
    assert [body for _, body, _ in paid("/often")] == ["1", "2", "3"]


def test_always_writes_the_rule_that_was_shown(payer: Sandbox, port: int) -> None:
    with payer.on_ask(lambda ask: None):
        background = payer.processes.start(
            ["curl", "-sS", "-m", "60", "-d", "1", f"http://{HOST_NAME}:{port}/always"]
        )
        until(lambda: Asks.list(sandbox="payer"))
        (ask,) = Asks.list()
        refused = atoll("approve", ask.ask_id, "--always")
        assert refused.returncode == 125 and b'+ paths = ["/always"]' in refused.stderr
        assert atoll("approve", ask.ask_id, "--always", "--yes").returncode == 0
        background.wait()
    network = payer.info().network
    assert isinstance(network, Policy)
    assert network.rules[0] == ask.always
    assert pay(payer, port, "/always", "2") == "paid 200"
    assert json.loads(pay(payer, port, "/other").rpartition(" ")[0])["error"] == "ask_nobody"


def test_a_program_that_hangs_up_ends_its_ask_and_nothing_is_sent(payer: Sandbox, port: int) -> None:
    with payer.on_ask(lambda ask: None):
        background = payer.processes.start(["curl", "-sS", "-d", "1", f"http://{HOST_NAME}:{port}/left"])
        until(lambda: Asks.list(sandbox="payer"))
        background.kill()
        until(lambda: not Asks.list(sandbox="payer"))
    assert paid("/left") == []


def test_five_that_wait_are_shown_again_by_the_next_supervisor_and_answered_there(
    payer: Sandbox, port: int
) -> None:
    with payer.on_ask(lambda ask: None):
        line = f"for n in 1 2 3 4 5; do curl -sS -m 60 -d $n http://{HOST_NAME}:{port}/after/$n & done; wait"
        background = payer.processes.start(["sh", "-c", line])
        until(lambda: len(Asks.list(sandbox="payer")) == 5)
        before = {ask.ask_id: ask.digest for ask in Asks.list()}
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        until(lambda: len(Asks.list(sandbox="payer")) == 5)
        asks = {ask.path: Asks.get(ask.ask_id) for ask in Asks.list()}
        assert {ask.ask_id: ask.digest for ask in asks.values()} == before
        assert asks["/after/3"].body == b"3"
        assert Asks.approve(asks["/after/3"]).outcome == "allowed"
        for path in ("/after/1", "/after/2", "/after/4", "/after/5"):
            assert Asks.deny(asks[path]).outcome == "denied"
        background.wait()
    assert [one[0] for one in _Bank.got if one[0].startswith("/after/")] == ["/after/3"]


def test_another_body_is_another_ask(payer: Sandbox, port: int) -> None:
    with payer.on_ask(lambda ask: None):
        line = f"for n in 1 2; do curl -sS -m 60 -d $n http://{HOST_NAME}:{port}/altered & done; wait"
        background = payer.processes.start(["sh", "-c", line])
        until(lambda: len(Asks.list(sandbox="payer")) == 2)
        first, second = Asks.list()
        with pytest.raises(AskAnswerError, match="other bytes"):
            Asks.approve(msgspec.structs.replace(first, digest=second.digest))
        Asks.deny(first)
        Asks.deny(second)
        background.wait()
    assert paid("/altered") == []


def test_a_sandbox_sleeps_while_its_request_waits_and_the_answer_wakes_it(
    module_home: Path, port: int
) -> None:
    del module_home
    lifecycle = Lifecycle(idle_suspend_s=1, wake_on_data=True)
    with (
        Sandbox.create(network=policy(port), lifecycle=lifecycle, name="sleeper") as sandbox,
        sandbox.on_ask(lambda ask: None),
    ):
        for path, verdict in (("/asleep", "paid"), ("/refused", "Not today.")):
            line = f"curl -sS -d 100 http://{HOST_NAME}:{port}{path} > answer"
            sandbox.processes.start(["sh", "-c", line], stream=False)
            until(lambda: Asks.list(sandbox="sleeper"))
            until(lambda: sandbox.info().state == "suspended")
            (ask,) = Asks.list(sandbox="sleeper")
            if verdict == "paid":
                Asks.approve(ask)
            else:
                Asks.deny(ask, verdict)
            until(lambda: sandbox.info().state == "running")  # nobody but the answer has used it
            until(lambda verdict=verdict: verdict in sandbox.run("cat answer").stdout)  # type: ignore[misc]
    assert len(paid("/asleep")) == 1
    assert paid("/refused") == []


def test_a_question_of_a_program_outside_is_answered_like_a_request(payer: Sandbox) -> None:
    with payer.on_ask(lambda ask: ask.body == b"DROP TABLE a"):
        assert payer.ask("Drop the table?", "DROP TABLE a", deadline_s=60).outcome == "allowed"
        assert payer.ask("Drop the table?", "DROP TABLE b", deadline_s=60).outcome == "denied"
    assert payer.ask("Drop the table?", deadline_s=60).reason.startswith("nobody is there")
