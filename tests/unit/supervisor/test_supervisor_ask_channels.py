"""Asks that are told outside: by a signed webhook, which may answer, and by pushes."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import importlib.machinery
import importlib.util
import ssl
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

from atoll.errors import InvalidSpecError
from atoll.server.certificates import certificates
from atoll.supervisor.doctor import ask_findings
from atoll.supervisor.lifecycle.ask_channels import connect_channels
from atoll.supervisor.lifecycle.ask_pushes import push_text
from atoll.supervisor.lifecycle.asks import WEBHOOK
from atoll.supervisor.lifecycle.signed_posts import PostError, SignedPosts
from atoll.supervisor.settings import Settings, read_settings
from atoll.supervisor.state.ask_listeners import GAP_S
from atoll.types import Ask, AskTerms
from tests.receiver import Post, Receiver, receiving
from tests.unit.supervisor.harness import Harness, with_harness
from tests.unit.supervisor.test_supervisor_asks import RULE, FakeEdge, acts, answer, held, new


def connected(harness: Harness, **settings: str) -> FakeEdge:
    """An edge, the channels that these settings make, and nobody else who listens."""
    asks = harness.system.asks
    edge = FakeEdge(asks)
    asks.inspection = cast(Any, edge)
    harness.boot_s += GAP_S
    connect_channels(harness.system.paths, Settings(**settings), asks, harness.system.tasks)  # type: ignore[arg-type]
    return edge


async def until(holds: Callable[[], object]) -> None:
    for _ in range(4000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def noted_as(harness: Harness, why: str) -> None:
    for _ in range(1000):
        if any(
            one["details"].get("reason") == why for one in await acts(harness) if one["act"] == "ask.untold"
        ):
            return
        await asyncio.sleep(0.01)
    raise AssertionError(f"nothing was noted as untold: {why}")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.supervisor.lifecycle.untold.WAITS_S", (0.01, 0.01))


def saying(receiver: Receiver, *statuses: int, **headers: str) -> None:
    """Have a receiver reply with one status after another, and then with the last one."""
    left = list(statuses)
    receiver.reply = lambda _: (left.pop(0) if len(left) > 1 else left[0], b"", headers)


@with_harness
async def test_a_webhook_hears_of_an_ask_and_its_end_and_counts_as_somebody(harness: Harness) -> None:
    ref = await new(harness, name="work")
    with receiving() as receiver:
        edge = connected(harness, ask_webhook=receiver.url)
        edge.asks.held(held(ref), RULE, b"1234")
        await until(lambda: receiver.posts)
        assert edge.answers == []
        shown = (await harness.ask("GET", f"/v1/asks/{'a' * 16}")).json
        assert receiver.posts[0].json == shown
        assert shown["body"] == "MTIzNA=="
        await answer(harness, allow=True)
        await until(lambda: len(receiver.posts) == 2)
    begun, ended = receiver.posts
    assert [post.headers["atoll-event"] for post in (begun, ended)] == ["ask.begun", "ask.ended"]
    assert begun.path == "/hook?to=me"
    assert (ended.json["outcome"], ended.json["ask_id"]) == ("allowed", "a" * 16)
    key = bytes.fromhex(harness.home.ask_webhook_key.read_text())
    for post in (begun, ended):
        sent = dict(part.split("=", 1) for part in post.headers["atoll-signature"].split(","))
        assert sent["t"].isdigit()
        code = hmac.new(key, sent["t"].encode() + b"." + post.body, hashlib.sha256)
        assert code.hexdigest() == sent["v1"]


@with_harness
async def test_a_webhook_answers_in_its_reply(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver:

        def reply(post: Post) -> tuple[int, bytes, dict[str, str]]:
            said = {"allow": False, "digest": post.json["digest"], "reason": "Too much.", "by": "us"}
            return 200, msgspec.json.encode(said), {}

        receiver.reply = reply
        edge = connected(harness, ask_webhook=receiver.url)
        edge.asks.held(held(ref), RULE, b"1234")
        await until(lambda: receiver.events() == ["ask.begun", "ask.ended"])
        assert (edge.answers[0]["code"], edge.answers[0]["reason"]) == ("ask_denied", "Too much.")
    assert (await acts(harness))[-1]["details"]["by"] == WEBHOOK


BAD_REPLIES: tuple[object, ...] = (
    {"allow": True, "digest": "e" * 64},
    {"allow": True},
    {"allow": "true", "digest": "d" * 64},
    {"allow": True, "digest": "d" * 64, "reason": "a\nb"},
    {"digest": "d" * 64},
    {"ok": True},
    [],
)


@with_harness
async def test_a_reply_to_other_bytes_or_none_that_makes_sense_is_no_answer(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver:
        edge = connected(harness, ask_webhook=receiver.url)
        for number, said in enumerate((*map(msgspec.json.encode, BAD_REPLIES), b"", b"\xff", b"[" * 9999)):
            receiver.reply = lambda _, said=said: (200, said, {})  # type: ignore[misc]
            edge.asks.held(held(ref, ask=f"{number:016x}"), RULE, b"1234")
            await until(lambda number=number: len(receiver.posts) > number)  # type: ignore[misc]
        await asyncio.sleep(0.05)
        assert edge.answers == []
        assert len(edge.asks.table.pending()) == len(BAD_REPLIES) + 3


@with_harness
async def test_the_webhook_is_no_second_person_beside_the_user_who_set_it(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver:
        receiver.reply = lambda post: (
            200,
            msgspec.json.encode({"allow": True, "digest": post.json["digest"]}),
            {},
        )
        edge = connected(harness, ask_webhook=receiver.url)
        edge.asks.held(held(ref), msgspec.structs.replace(RULE, ask=AskTerms(approvals=2)), b"1234")
        await until(lambda: edge.asks.get("a" * 16).approved_by == (WEBHOOK,))
        assert (await answer(harness, allow=True)).status == 409
        assert edge.answers == []


@with_harness
async def test_a_webhook_that_fails_for_a_moment_is_tried_again(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver:
        saying(receiver, 503, 429, 200)
        edge = connected(harness, ask_webhook=receiver.url)
        edge.asks.held(held(ref), RULE, b"1234")
        await until(lambda: len(receiver.posts) == 3)
        await answer(harness, allow=True)
        await until(lambda: receiver.events() == ["ask.begun"] * 3 + ["ask.ended"])
    assert "ask.untold" not in [one["act"] for one in await acts(harness)]


@with_harness
async def test_a_webhook_that_fails_is_noted_and_the_ask_waits_on(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver, pytest.MonkeyPatch.context() as patch:
        logged: list[str] = []
        patch.setattr(
            "atoll.supervisor.lifecycle.untold._log.warning", lambda text, *more: logged.append(text % more)
        )
        edge = connected(harness, ask_webhook=receiver.url)
        for ask_id, status, tries in (("a" * 16, 500, 3), ("b" * 16, 404, 1), ("c" * 16, 302, 1)):
            receiver.posts.clear()
            saying(receiver, status, Location=f"http://127.0.0.1:{receiver.port}/elsewhere")
            edge.asks.held(held(ref, ask=ask_id), RULE, b"1234")
            more = ", and redirects are not followed" if status == 302 else ""
            await noted_as(harness, f"status {status}{more}")
            assert [post.path for post in receiver.posts] == ["/hook?to=me"] * tries
        assert len(edge.asks.table.pending()) == 3
    untold = [one["details"] for one in await acts(harness) if one["act"] == "ask.untold"]
    assert [(one["ask"][0], one["channel"]) for one in untold] == [
        ("a", "the webhook"),
        ("b", "the webhook"),
        ("c", "the webhook"),
    ]
    assert logged == [f"the webhook was not told of ask {'a' * 16}: status 500"]


@with_harness
async def test_a_slow_webhook_delays_no_ask_no_answer_and_no_end_of_the_supervisor(harness: Harness) -> None:
    ref = await new(harness)
    go_on = threading.Event()
    with receiving() as receiver:

        def reply(_: Post) -> tuple[int, bytes, dict[str, str]]:
            go_on.wait(20)
            return 204, b"", {}

        receiver.reply = reply
        edge = connected(harness, ask_webhook=receiver.url)
        try:
            edge.asks.held(held(ref), RULE, b"1234")
            await until(lambda: receiver.posts)
            assert (await answer(harness, allow=True)).json["outcome"] == "allowed"
            begun_s = time.monotonic()
            await harness.aclose()
            assert time.monotonic() - begun_s < 5  # and not the end of the supervisor
        finally:
            go_on.set()
            await harness.start()


def test_a_receiver_that_does_not_reply_in_time_has_not_taken_it() -> None:
    go_on = threading.Event()
    with receiving() as receiver:
        receiver.reply = lambda _: (200 if go_on.wait(20) else 500, b"", {})
        posts = SignedPosts(receiver.url, b"key", lambda: 7.5, bound_s=0.05)
        try:
            with pytest.raises(PostError, match=r"no answer in 0.05 s") as raised:
                asyncio.run(posts.post("ask.begun", b"{}"))
        finally:
            go_on.set()
    assert raised.value.may_pass
    with pytest.raises(PostError, match="refused"):
        asyncio.run(SignedPosts(receiver.url, b"key", lambda: 7.5).post("ask.begun", b"{}"))


def test_https_needs_a_certificate_that_this_host_trusts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = certificates(tmp_path, None)
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(files.cert, files.key)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with receiving(trust) as receiver:
        url = receiver.url.replace("http:", "https:")
        with pytest.raises(PostError, match="CERTIFICATE_VERIFY_FAILED"):
            asyncio.run(SignedPosts(url, b"key", lambda: 7.5).post("ask.begun", b"{}"))
        monkeypatch.setenv("SSL_CERT_FILE", str(files.authority))
        asyncio.run(SignedPosts(url, b"key", lambda: 7.5).post("ask.begun", b"{}"))
    assert receiver.events() == ["ask.begun"]


def test_https_goes_by_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:  # it takes no CONNECT
        monkeypatch.setenv("https_proxy", f"http://user:pass@127.0.0.1:{receiver.port}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        with pytest.raises(PostError, match="Tunnel connection failed: 501"):
            asyncio.run(SignedPosts("https://hook.invalid/a", b"key", lambda: 7.5).post("ask.begun", b"{}"))


@with_harness
async def test_a_flood_of_asks_leaves_the_webhook_those_that_still_wait(harness: Harness) -> None:
    ref = await new(harness)
    with receiving() as receiver:
        edge = connected(harness, ask_webhook=receiver.url)
        for number in range(1000):
            edge.asks.held(held(ref, ask=f"{number:016x}"), RULE, b"1234")
            edge.asks.ended(f"{number:016x}", "gone", 0)
        edge.asks.held(held(ref), RULE, b"1234")
        await until(lambda: receiver.posts)
        assert [post.json["ask_id"] for post in receiver.posts] == ["a" * 16]


class FakeApprise:
    """Stands for the package: keeps what it is to send."""

    sent: list[dict[str, str]]

    def __init__(self, sent: list[dict[str, str]]) -> None:
        self.sent = sent

    def add(self, url: str) -> bool:
        return url.startswith("ntfy://")

    def notify(self, **push: str) -> bool:
        self.sent.append(push)
        return True


def install(patch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Have a package apprise that keeps what it sends."""
    sent: list[dict[str, str]] = []
    module = types.ModuleType("apprise")
    module.__spec__ = importlib.machinery.ModuleSpec("apprise", None)
    module.Apprise = lambda: FakeApprise(sent)  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "apprise", module)
    return sent


@with_harness
async def test_a_push_has_one_line_the_deadline_and_how_to_approve_and_counts_as_somebody(
    harness: Harness,
) -> None:
    ref = await new(harness, name="work")
    with pytest.MonkeyPatch.context() as patch:
        sent = install(patch)
        edge = connected(harness, ask_notify="ntfy://host/topic bad://")
        edge.asks.held(held(ref, path="/pay\x1b[2J"), RULE, b"secret body")
        await until(lambda: sent)
        assert edge.answers == []
        await answer(harness, allow=True)
    assert sent == [
        {
            "title": "atoll: work asks",
            "body": "POST https://api.x/pay\\x1b[2J\nuntil 1970-01-01 00:05:01 UTC\natoll approve "
            + "a" * 16,
            "body_format": "text",
        }
    ]


@with_harness
async def test_a_sandbox_gets_few_pushes_at_once(harness: Harness) -> None:
    ref = await new(harness)
    with pytest.MonkeyPatch.context() as patch:
        sent = install(patch)
        edge = connected(harness, ask_notify="ntfy://host/topic")
        for number in range(20):
            edge.asks.held(held(ref, ask=f"{number:016x}"), RULE, b"1234")
        await until(lambda: len(sent) == 8)
        await asyncio.sleep(0.05)
    assert len(sent) == 8
    assert [one["act"] for one in await acts(harness)].count("ask.untold") == 12


@with_harness
async def test_without_the_package_nobody_listens(harness: Harness) -> None:
    ref = await new(harness)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.supervisor.lifecycle.ask_pushes.is_installed", lambda: False)
        patch.setattr("atoll.supervisor.lifecycle.ask_channels.is_installed", lambda: False)
        patch.setattr("atoll.supervisor.doctor.is_installed", lambda: False)
        edge = connected(harness, ask_notify="ntfy://host/topic")
        edge.asks.held(held(ref), RULE, b"1234")
        assert edge.answers[0]["code"] == "ask_nobody"
        (finding,) = ask_findings(Settings(ask_notify="ntfy://host/topic"))
        assert (finding.level, finding.remedy) == (
            "warning",
            "pip install 'atoll[notify]', for the Python that runs atoll",
        )


@pytest.mark.filterwarnings("ignore")  # its own
@with_harness
async def test_apprise_itself_sends_a_push(harness: Harness) -> None:
    ref = await new(harness, name="work")
    with receiving() as receiver:
        edge = connected(harness, ask_notify=f"json://127.0.0.1:{receiver.port}")
        edge.asks.held(held(ref), RULE, b"1234")
        await until(lambda: receiver.posts)
        await answer(harness, allow=True)
    assert receiver.posts[0].json["title"] == "atoll: work asks"
    assert receiver.posts[0].json["message"].startswith("POST https://api.x/pay?n=1\nuntil 1970")


def test_a_push_cuts_what_the_guest_says() -> None:
    ask = Ask(ask_id="a1", sandbox_id="s", kind="question", title="x\n" * 300, digest="d", at=0, deadline=1)
    title, body = push_text(ask)
    assert title == "atoll: s asks"
    assert len(body.split("\n")) == 3
    assert len(body.split("\n")[0]) == 400


def test_the_doctor_tells_of_channels_that_are_set() -> None:
    assert ask_findings(Settings()) == []
    (finding,) = ask_findings(Settings(ask_webhook="https://hook.example/"))
    assert (finding.level, finding.message) == ("ok", "told by a webhook")


GOOD_URLS = ["https://hook.example/a?b=c", "http://127.0.0.1:8080/", "http://[::1]/x", "http://localhost:1"]
BAD_URLS = [
    "http://hook.example/",
    "http://10.0.0.1/",
    "ftp://hook.example/",
    "hook.example",
    "https://",
    "https://user:pass@hook.example/",
    "https://hook.example/#a",
    "https://hook.example:99999/",
    "https://hook.example/a b",
    "https://hook.example/\r\nx: y",
    "https://hook.example/ä",
]


def test_an_address_that_asks_must_not_go_to_is_refused() -> None:
    for url in GOOD_URLS:
        assert read_settings({"ATOLL_ASK_WEBHOOK": url}).ask_webhook == url
    for url in BAD_URLS:
        with pytest.raises(InvalidSpecError, match="ATOLL_ASK_WEBHOOK") as raised:
            read_settings({"ATOLL_ASK_WEBHOOK": url})
        assert "hook.example" not in str(raised.value)
