"""A function, a webhook and the command line hear of what a sandbox does, within a second."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from tests.e2e.command_line import said
from tests.receiver import receiving
from tests.waiting import until

from atoll import AsyncSandbox, Audit, Sandbox, Secrets, Supervisor
from atoll.sdk import Alerts, AsyncAlerts
from atoll.types import HOST_NAME, Alert, Inject, Policy, Rule


def test_a_new_host_a_secret_and_a_canary_reach_whoever_listens(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiving() as receiver:
        receiver.reply = lambda _: (200, b"taken", {})
        monkeypatch.setenv("ATOLL_ALERT_WEBHOOK", receiver.url)
        Supervisor.stop()  # the next one reads it
        Secrets.create("bank", "s3cret-of-the-bank")
        Secrets.create("bait", "bait-3141592653589793", canary=True)
        inject = (Inject(secret="bank", format="Bearer {}"),)
        rule = Rule(hosts=(HOST_NAME,), ports=(receiver.port,), methods=("POST",), inject=inject)
        heard: list[tuple[float, Alert]] = []
        with (
            Sandbox.create(network=Policy(rules=(rule,)), name="work") as sandbox,
            Alerts.on_alert(lambda alert: heard.append((time.time(), alert))),
        ):
            at = f"http://{HOST_NAME}:{receiver.port}"
            assert sandbox.run(f"curl -sS -d a {at}/a").stdout == "taken"
            assert sandbox.run(f"curl -sS -d b {at}/b").stdout == "taken"
            until(lambda: len(heard) == 2)
            sandbox.processes.start(["curl", "-sS", "-d", "bait-3141592653589793", f"{at}/c"])
            until(lambda: len(heard) == 3)
            until(lambda: [post.path for post in receiver.posts].count("/hook?to=me") == 3)
            rules = [alert.rule for _, alert in heard]
            assert rules == ["host", "secret", "canary"]
            assert all(moment - alert.at < 1 for moment, alert in heard)
            posts = [post for post in receiver.posts if post.path == "/hook?to=me"]
            posts.sort(key=lambda post: post.json["alert_id"])  # two at once may come in any order
            assert [post.json["rule"] for post in posts] == rules
            assert "/c" not in [post.path for post in receiver.posts]
            assert [alert.rule for alert in Alerts.list(sandbox="work")] == rules
            lines = [json.loads(line) for line in said("alerts", "work", "--json").splitlines()]
            assert [line["title"] for line in lines[:2]] == [
                f"1 new host: {HOST_NAME}",
                f"1 first use of a secret: bank, at {HOST_NAME}",
            ]
        assert [entry.act for entry in Audit.entries(act="alert")] == [f"alert.{rule}" for rule in rules]


def test_a_coroutine_function_hears_too_and_one_that_fails_hears_the_next(home: Path) -> None:
    del home
    heard: list[Alert] = []
    both = asyncio.Event()

    async def handle(alert: Alert) -> None:
        heard.append(alert)
        if len(heard) == 2:
            both.set()
        raise ValueError("on purpose")

    async def main() -> None:
        async with AsyncAlerts.on_alert(handle), await AsyncSandbox.create() as sandbox:
            for reason in ("odd", "odd again"):
                await sandbox.unplug(reason)
                await sandbox.replug()
            other = await AsyncSandbox.create()
            await other.unplug("odder")
            await asyncio.wait_for(both.wait(), 30)
            await other.kill()

    asyncio.run(main())
    assert [alert.title for alert in heard] == ["unplugged: odd", "unplugged: odder"]
