"""A webhook on this host hears of a request that a rule asks about, and answers."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.receiver import Post, receiving
from tests.waiting import until

from atoll import Audit, Sandbox, Supervisor
from atoll.types import HOST_NAME, Policy, Rule


def test_a_webhook_approves_a_request_and_hears_of_its_end(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reply(post: Post) -> tuple[int, bytes, dict[str, str]]:
        if post.headers.get("atoll-event") != "ask.begun":
            return 200, b"paid", {}
        said = {"allow": post.json["path"] == "/small", "digest": post.json["digest"], "reason": "Too much."}
        return 200, msgspec.json.encode(said), {}

    with receiving() as receiver:
        receiver.reply = reply
        monkeypatch.setenv("ATOLL_ASK_WEBHOOK", receiver.url)
        Supervisor.stop()  # the next one reads it
        rule = Rule(name="pay", action="ask", hosts=(HOST_NAME,), ports=(receiver.port,))
        with Sandbox.create(network=Policy(rules=(rule,)), name="payer") as sandbox:
            at = f"http://{HOST_NAME}:{receiver.port}"
            assert sandbox.run(f"curl -sS -d 100 {at}/small").stdout == "paid"
            assert "Too much." in sandbox.run(f"curl -sS -d 100 {at}/large").stdout
            until(lambda: len(receiver.posts) == 5)
        assert (home / "ask-webhook.key").stat().st_mode & 0o777 == 0o600
    posts = [(post.path, post.headers.get("atoll-event")) for post in receiver.posts]
    assert sorted(posts, key=str) == sorted(
        [("/small", None), *[("/hook?to=me", event) for event in ("ask.begun", "ask.ended")] * 2], key=str
    )
    answers = [entry.details["by"] for entry in Audit.entries(act="ask") if "by" in entry.details]
    assert answers == ["the webhook"] * 2
