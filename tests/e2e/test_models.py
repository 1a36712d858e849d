"""Sandboxes use models without a key inside, and spend no more than their budgets."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast

import pytest
from tests.e2e.command_line import said
from tests.waiting import until

from atoll import Audit, DelegationSpec, Hosting, Sandbox, Secrets, Supervisor
from atoll.host import Home, earlier_program
from atoll.protocol import Hello
from atoll.sdk import Models
from atoll.types import ModelAccess, ModelBudget, ModelPrice, ModelProvider, ModelSetup

PRICE = ModelPrice(input=1000, output=2000)  # a thousandth of a dollar, and two, for each token
USED = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
COST_USD = 10 * 0.001 + 5 * 0.002
ASK = "import json,os,sys,urllib.request as u\n" + (
    "r=u.Request(os.environ['OPENAI_BASE_URL']+'/chat/completions',json.dumps(dict(model=sys.argv[1],"
    "max_tokens=20,stream=len(sys.argv)>2,messages=[dict(role='user',content='hi')])).encode(),"
    "{'Content-Type':'application/json','Authorization':'Bearer '+os.environ['OPENAI_API_KEY']})\n"
    "try:\n a=u.urlopen(r,timeout=30); print(a.status, a.read().decode())\n"
    "except u.HTTPError as e:\n print(e.code, e.read().decode())\n"
)


MANY = (
    "import subprocess,sys,os\n"
    "made=[subprocess.Popen([sys.executable,'-c',os.environ['ASK'],'cheap','stream'],stdout=subprocess.PIPE)"
    " for _ in range(24)]\n"
    "print(*[one.communicate()[0].split()[0].decode() for one in made])\n"
)


class _Provider(BaseHTTPRequestHandler):
    """Plays OpenAI. It answers everything with the same five tokens."""

    protocol_version = "HTTP/1.1"
    asked: list[tuple[str, str | None, Any]] = []  # noqa: RUF012 - shared by all requests

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, self.headers.get("Authorization"), body))
        if body["stream"]:
            chunks = [{"choices": [{"delta": {"content": text}}], "usage": None} for text in ("Hel", "lo")]
            lines = [*chunks, {"choices": [], "usage": USED}]
            data = "".join(f"data: {json.dumps(line)}\n\n" for line in lines) + "data: [DONE]\n\n"
            kind, sent = "text/event-stream", data.encode()
        else:
            answer = {"model": body["model"], "choices": [{"message": {"content": "Hello"}}], "usage": USED}
            kind, sent = "application/json", json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(sent)))
        self.end_headers()
        self.wfile.write(sent)

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture(scope="module")
def provider() -> Iterator[str]:
    """The address of a provider on this host."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Provider)
    serving = threading.Thread(target=server.serve_forever)
    serving.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        serving.join()
        server.server_close()


@pytest.fixture(scope="module")
def offered(module_home: Path, provider: str) -> Path:
    """A home that offers the provider's models."""
    Secrets.create("sk-1", "sk-the-key")
    Models.set(
        ModelSetup(
            providers={"fake": ModelProvider(kind="openai", url=provider, keys=("sk-1",))},
            aliases={"cheap": ("fake/small",)},
            prices={"fake/small": PRICE},
        )
    )
    return module_home


def ask(sandbox: Sandbox, model: str, *stream: str) -> tuple[int, str]:
    result = sandbox.exec(["python3", "-c", ASK, model, *stream])
    status, _, body = (result.stdout.strip() or f"0 {result.stderr}").partition(" ")
    return int(status), body


def spent(sandbox: Sandbox) -> float:
    use = sandbox.stats().models
    assert use is not None
    return round(use.spent_usd, 9)


def test_an_alias_gets_its_model_and_the_key_stays_outside(offered: Path) -> None:
    del offered
    access = ModelAccess(allow=("cheap",), usd=5.0)
    with Sandbox.create(network="none", hosting=Hosting(models=access)) as sandbox:
        status, body = ask(sandbox, "cheap")
        assert (status, json.loads(body)["choices"][0]["message"]["content"]) == (200, "Hello")
        path, key, sent = _Provider.asked[-1]
        assert (path, key, sent["model"]) == ("/v1/chat/completions", "Bearer sk-the-key", "small")
        assert "sk-the-key" not in sandbox.run("env; cat /proc/*/environ 2>/dev/null").stdout
        until(lambda: spent(sandbox) == COST_USD)
        assert ask(sandbox, "fake/other")[0] == 403
        status, body = ask(sandbox, "cheap", "stream")
        assert (status, body.count("data: "), 'usage": {' in body) == (200, 3, False)
        until(lambda: spent(sandbox) == 2 * COST_USD)
        (use,) = Models.usage(sandbox=sandbox.id).uses
        assert (use.model, use.requests, use.input, use.output) == ("small", 2, 20, 10)
        lines = [entry.details for entry in Audit.entries(sandbox=sandbox.id, act="model.called")]
        assert [(line["asked"], line["ending"], line["estimated"]) for line in lines] == [
            ("cheap", "whole", 0)
        ] * 2
        assert "It and its copies spend at most $5.00 a day." in said("powers", sandbox.id)


def test_a_copy_spends_the_same_budget_and_nobody_more_than_there_is(offered: Path) -> None:
    del offered
    access = ModelAccess(usd=0.25, per="total")
    with Sandbox.create(network="none", hosting=Hosting(models=access)) as sandbox:
        (copy,) = sandbox.fork()
        with copy:
            answers = [ask(each, "cheap") for each in (sandbox, copy) * 8]
            refused = [body for status, body in answers if status == 429]
            assert refused and f"sandbox:{sandbox.id}" in refused[0]
            went = sum(status == 200 for status, _ in answers)
            assert went >= 2
            until(lambda: spent(copy) == round(went * COST_USD, 9))
            assert spent(sandbox) == spent(copy) <= 0.25


def test_a_delegation_bounds_what_all_under_it_spend(offered: Path) -> None:
    del offered
    spec = DelegationSpec(models=ModelBudget(usd=0.2, per="total"))
    hosting = Hosting(models=ModelAccess(), delegation=spec)
    with Sandbox.create(network="none", hosting=hosting) as sandbox:
        (copy,) = sandbox.fork(models=ModelAccess())
        with copy:
            delegation = sandbox.info().delegation
            assert delegation is not None
            name = f"delegation:{delegation.uid}"
            answers = [ask(each, "cheap") for each in (sandbox, copy) * 4]
            refused = [body for status, body in answers if status == 429]
            assert refused and name in refused[0]
            went = sum(status == 200 for status, _ in answers)

            def used() -> float:
                own, shared = Models.usage(sandbox=copy.id).budgets
                assert (own.budget, shared.budget, shared.usd) == (f"sandbox:{copy.id}", name, 0.2)
                return round(shared.spent_usd, 9)

            until(lambda: used() == round(went * COST_USD, 9))
            assert went >= 2 and used() <= 0.2


def test_streams_at_once_spend_no_more_than_there_is(offered: Path) -> None:
    del offered
    access = ModelAccess(usd=0.3, per="total")
    with Sandbox.create(network="none", hosting=Hosting(models=access)) as sandbox:
        before = len(_Provider.asked)
        done = sandbox.exec(["python3", "-c", MANY], env={"ASK": ASK}, timeout_s=120).check()
        statuses = done.stdout.split()
        went = statuses.count("200")
        assert set(statuses) == {"200", "429"}, done.stdout
        assert len(_Provider.asked) - before == went
        until(lambda: spent(sandbox) == round(went * COST_USD, 9))
        assert spent(sandbox) <= 0.3


def test_the_command_line_sets_and_shows_models(offered: Path, provider: str, tmp_path: Path) -> None:
    del offered
    file = tmp_path / "models.toml"
    head = f'[providers.fake]\nkind = "openai"\nurl = "{provider}"\nkeys = ["sk-1"]\n'
    file.write_text(
        head + '[aliases]\ncheap = ["fake/small"]\n[prices."fake/small"]\ninput = 1000\noutput = 2000\n'
    )
    assert f"provider  fake: openai at {provider}, 1 keys" in said("models", "set", str(file))
    assert "alias     cheap: fake/small" in said("models", "show")
    made = said("create", "--model", "cheap", "--model-usd", "2").strip()
    with Sandbox.connect(made) as sandbox:
        assert ask(sandbox, "cheap")[0] == 200
        until(lambda: f"{made}  fake/small" in said("models", "usage", "--sandbox", made))
    assert json.loads(said("models", "usage", "--sandbox", made, "--json"))["budgets"][0]["usd"] == 2
    assert [row["own"] for row in json.loads(said("models", "prices", "--json"))["prices"]] == [True]
    assert "fake/small" in said("models", "prices")
    said("kill", made)


def test_a_sandbox_without_models_knows_no_such_name(offered: Path) -> None:
    del offered
    with Sandbox.create() as sandbox:
        assert sandbox.run("getent hosts models.atoll.internal", timeout_s=20).exit_code != 0
        assert "OPENAI" not in sandbox.run("env").stdout


def test_what_is_spent_stays_spent_whoever_is_killed(offered: Path) -> None:
    access = ModelAccess(usd=1.0, per="total")
    with Sandbox.create(network="none", hosting=Hosting(models=access)) as sandbox:
        assert ask(sandbox, "cheap")[0] == 200
        until(lambda: spent(sandbox) == COST_USD)
        edge = earlier_program(Home(offered), "edge")
        assert edge is not None
        os.kill(edge.pid, signal.SIGKILL)
        edge.leave()
        until(lambda: ask(sandbox, "cheap")[0] == 200)
        until(lambda: any(entry.act == "model.lost" for entry in Audit.entries()))
        until(lambda: spent(sandbox) >= 2 * COST_USD)
        assert spent(sandbox) < 1.0
        os.kill(cast(Hello, Supervisor.hello()).pid, signal.SIGKILL)
        before = spent(sandbox)
        until(lambda: ask(sandbox, "cheap")[0] == 200)
        until(lambda: spent(sandbox) >= round(before + COST_USD, 9))
        (use,) = Models.usage(sandbox=sandbox.id).uses
        assert 2 <= use.requests <= 3
        before, lost = spent(sandbox), list(Audit.entries(act="model.lost"))
        said("stop")  # the edge ends as well, and gives back what it has not used
        after = sandbox.stats().models
        assert after is not None
        assert (round(after.spent_usd, 9), after.held_usd) == (before, 0.0)
        assert ask(sandbox, "cheap")[0] == 200
        assert list(Audit.entries(act="model.lost")) == lost
        assert spent(sandbox) < 1.0
