"""Alerts: what raises one, how few of them a hostile guest can raise, and who is told."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.supervisor.settings import Settings, read_settings
from atoll.supervisor.state.alert_book import KEPT_MOST, AlertBook
from atoll.supervisor.state.alert_rules import About, AlertRules
from atoll.supervisor.state.seen import HOSTS_MOST, Seen
from atoll.types import Alert, EgressDecision
from tests.receiver import receiving
from tests.unit.supervisor.harness import Harness, with_harness

WORK = About("a" * 20, "reef", "d1")


def decision(host: str, action: str = "allow", **more: Any) -> EgressDecision:
    return EgressDecision(at=1.0, action=action, rule=0, host=host, port=443, scheme="https", **more)  # type: ignore[arg-type]


class Rules:
    """The rules by themselves, with a clock that only a test moves."""

    def __init__(self, path: Path, **settings: Any) -> None:
        self.now_s = 1000.0
        self.told: list[Alert] = []
        self.rules = AlertRules(
            settings=Settings(**settings),
            seen=Seen(path / "seen"),
            book=AlertBook(path / "alerts", lambda: self.now_s),
            name_of=lambda _: "work",
            tell=self.told.append,
            boot_s=lambda: self.now_s,
        )

    def refuse(self, times: int, about: About = WORK, host: str = "evil.example") -> None:
        for _ in range(times):
            self.rules.decided(about, [decision(host, "deny")])

    def pass_s(self, seconds: float) -> None:
        self.now_s += seconds
        self.rules.settle()


def on_loop(test: Callable[[Path], None]) -> Callable[[Path], None]:
    def run(tmp_path: Path) -> None:
        async def body() -> None:
            test(tmp_path)

        asyncio.run(body())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


@on_loop
def test_many_refusals_raise_one_alert_and_a_flood_one_more_a_minute(tmp_path: Path) -> None:
    on = Rules(tmp_path)
    on.refuse(29)
    assert on.told == []
    on.refuse(100_000)
    (alert,) = on.told
    assert (alert.rule, alert.count, alert.title) == (
        "refusals",
        30,
        "30 refusals within a minute, such as evil.example:443",
    )
    assert (alert.sandbox_id, alert.sandbox_name, alert.team, alert.delegation) == (
        WORK.sandbox_id,
        "work",
        "reef",
        "d1",
    )
    on.pass_s(61)
    assert [one.count for one in on.told] == [30, 99_999]
    on.pass_s(61)
    on.pass_s(61)
    assert len(on.told) == 2
    assert not on.rules._groups


@on_loop
def test_few_refusals_a_minute_raise_none_however_long_they_go_on(tmp_path: Path) -> None:
    on = Rules(tmp_path)
    for _ in range(10):
        on.refuse(20)
        on.now_s += 61
    assert on.told == []


@on_loop
def test_a_host_is_new_once_to_a_team_and_across_restarts(tmp_path: Path) -> None:
    on = Rules(tmp_path)
    on.rules.decided(WORK, [decision("api.example"), decision("api.example"), decision("no.example", "deny")])
    on.rules.decided(About("b" * 20, "reef"), [decision("api.example")])
    on.rules.decided(About("c" * 20, "tide"), [decision("api.example")])
    assert [(one.team, one.title) for one in on.told] == [
        ("reef", "1 new host: api.example"),
        ("tide", "1 new host: api.example"),
    ]
    again = Rules(tmp_path)
    again.rules.seen.load(lambda _: True)
    again.rules.decided(WORK, [decision("api.example")])
    assert again.told == []


@on_loop
def test_what_an_observing_policy_lets_through_is_reached_and_not_refused(tmp_path: Path) -> None:
    on = Rules(tmp_path, alert_refusals=1)
    on.rules.decided(WORK, [decision("api.example", "deny", observed=True)])
    assert [one.rule for one in on.told] == ["host"]


@on_loop
def test_a_secret_is_new_to_each_sandbox_that_uses_it(tmp_path: Path) -> None:
    on = Rules(tmp_path, alert_rules="secret")
    for sandbox_id in ("a" * 20, "a" * 20, "b" * 20):
        on.rules.decided(About(sandbox_id), [decision("api.example", secrets=("bank",))])
    assert [(one.sandbox_id, one.title) for one in on.told] == [
        ("a" * 20, "1 first use of a secret: bank, at api.example"),
        ("b" * 20, "1 first use of a secret: bank, at api.example"),
    ]
    again = Rules(tmp_path, alert_rules="secret")
    again.rules.seen.load(lambda sandbox_id: sandbox_id == "a" * 20)
    for sandbox_id in ("a" * 20, "b" * 20):
        again.rules.decided(About(sandbox_id), [decision("api.example", secrets=("bank",))])
    assert [one.sandbox_id for one in again.told] == ["b" * 20]


@on_loop
def test_a_guest_that_invents_hosts_raises_one_alert_a_minute_and_is_told_for_ever(tmp_path: Path) -> None:
    on = Rules(tmp_path)
    for number in range(HOSTS_MOST + 1000):
        on.rules.decided(WORK, [decision(f"h{number}.example")])
    assert len(on.told) == 1
    on.pass_s(61)
    assert (on.told[-1].count, len(on.told[-1].subjects)) == (HOSTS_MOST + 999, 8)
    for _ in range(3):
        on.rules.decided(WORK, [decision("beyond.example")])
        on.pass_s(61)
    assert len(on.told) == 5
    assert (tmp_path / "seen").read_bytes().count(b"\n") == HOSTS_MOST


@on_loop
def test_many_sandboxes_of_a_team_leave_other_teams_and_rules_their_alerts(tmp_path: Path) -> None:
    on = Rules(tmp_path, alerts_a_minute=3)
    for number in range(100):
        on.refuse(30, About(f"{number:020}", "reef"))
    on.refuse(30, About("t" * 20, "tide"))
    on.rules.decided(WORK, [decision("api.example")])
    assert [(one.team, one.rule) for one in on.told] == [
        *[("reef", "refusals")] * 3,
        ("tide", "refusals"),
        ("reef", "host"),
    ]
    on.pass_s(61)
    more = on.told[-1]
    assert (more.rule, more.team, more.count, more.title, more.sandbox_id) == (
        "more",
        "reef",
        97,
        "97 more alerts within a minute",
        None,
    )


@on_loop
def test_what_a_guest_chose_is_harmless_and_short(tmp_path: Path) -> None:
    on = Rules(tmp_path)
    on.rules.decided(WORK, [decision("a\x1b[2J" + "b" * 999)])
    assert on.told[0].subjects[0].startswith("a\\x1b[2J")
    assert len(on.told[0].subjects[0]) == 253


@on_loop
def test_the_end_of_the_supervisor_tells_what_was_only_counted(tmp_path: Path) -> None:
    on = Rules(tmp_path, alerts_a_minute=1)
    on.refuse(40)
    on.refuse(30, About("b" * 20, "reef"))
    on.rules.close()
    assert [(one.rule, one.count) for one in on.told] == [("refusals", 30), ("more", 2)]


def test_the_facts_of_sandboxes_that_are_gone_leave_the_file(tmp_path: Path) -> None:
    seen = Seen(tmp_path / "seen")
    seen.host("reef", "api.example")
    for number in range(10_050):
        assert not seen.secret(str(number), "bank")
        seen.forget(str(number))
    assert (tmp_path / "seen").read_bytes().count(b"\n") < 100
    again = Seen(tmp_path / "seen")
    again.load(lambda _: True)
    assert again.host("reef", "api.example")


def test_a_team_keeps_its_newest_alerts_whatever_others_raise(tmp_path: Path) -> None:
    book = AlertBook(tmp_path / "alerts", lambda: 5.0)

    def add(team: str) -> None:
        book.add(Alert(alert_id=book.next_id(), at=5.0, rule="host", title="t", team=team))

    add("tide")
    for _ in range(KEPT_MOST + 10):
        add("reef")
    assert len(book.page("reef", None).alerts) == KEPT_MOST
    page = book.page("tide", None)
    assert len(page.alerts) == 1
    assert page.next == page.alerts[0].alert_id
    again = AlertBook(tmp_path / "alerts", lambda: 5.0)
    again.load()
    assert again.page("tide", None) == page
    assert again.next_id() > book.page(None, None).next


async def alerts(harness: Harness, query: str = "") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await harness.ask("GET", f"/v1/alerts{query}")).json["alerts"]
    return found


async def audited(harness: Harness) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (await harness.ask("GET", "/v1/audit?act=alert")).json["entries"]
    return found


@with_harness
async def test_alerts_are_listed_by_team_and_sandbox_and_are_lines_of_the_audit_log(harness: Harness) -> None:
    ref = (await harness.create(name="work"))["sandbox_id"]
    other = (await harness.create())["sandbox_id"]
    decisions = harness.system.decisions
    decisions.add(ref, [decision("api.example")], "d1", "reef")
    decisions.add(other, [decision("api.example")], None, "tide")
    assert [one["team"] for one in await alerts(harness)] == ["reef", "tide"]
    (one,) = await alerts(harness, "?team=reef")
    assert (one["sandbox_id"], one["sandbox_name"], one["rule"]) == (ref, "work", "host")
    assert [one["team"] for one in await alerts(harness, f"?sandbox={other}")] == ["tide"]
    assert [one["team"] for one in await alerts(harness, "?newest=1")] == ["tide"]
    first = (await audited(harness))[0]
    assert (first["act"], first["sandbox_id"], first["team"], first["delegation"]) == (
        "alert.host",
        ref,
        "reef",
        "d1",
    )
    assert first["details"]["title"] == "1 new host: api.example"


@with_harness
async def test_decisions_that_get_no_line_still_raise_alerts(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    flood = [decision(f"h{number}", "deny") for number in range(5000)]
    harness.system.decisions.add(ref, [*flood, decision("quiet.example", secrets=("bank",))])
    assert [one["rule"] for one in await alerts(harness)] == ["refusals", "host", "secret"]


@with_harness
async def test_an_unplugged_sandbox_raises_an_alert_with_the_reason(harness: Harness) -> None:
    for reason, rule in (("a canary appeared in a header to evil.example", "canary"), ("odd", "unplugged")):
        ref = (await harness.create())["sandbox_id"]
        await harness.ask("POST", f"/v1/sandboxes/{ref}/unplug", {"reason": reason})
        (one,) = await alerts(harness, f"?sandbox={ref}")
        assert (one["rule"], one["title"]) == (rule, f"unplugged: {reason}")
        entries = (await harness.ask("GET", f"/v1/audit?act=sandbox.unplugged&sandbox={ref}")).json["entries"]
        assert [entry["details"] for entry in entries] == [{"reason": reason}]


@with_harness
async def test_alerts_are_there_after_a_restart_and_end_with_no_sandbox(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    harness.system.decisions.add(ref, [decision("api.example", secrets=("bank",))])
    before = await alerts(harness)
    await harness.aclose()
    await harness.start()
    assert await alerts(harness) == before
    harness.system.decisions.add(ref, [decision("api.example", secrets=("bank",))])
    assert await alerts(harness) == before


async def until(holds: Callable[[], object]) -> None:
    for _ in range(2000):
        if holds():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it never came")


async def with_webhook(harness: Harness, url: str) -> str:
    await harness.aclose()
    harness.settings = Settings(host_memory_free_mib=0.0, alert_webhook=url)
    await harness.start()
    return str((await harness.create(name="work"))["sandbox_id"])


@with_harness
async def test_a_webhook_gets_a_signed_post_within_a_second(harness: Harness) -> None:
    with receiving() as receiver:
        ref = await with_webhook(harness, receiver.url)
        harness.system.decisions.add(ref, [decision("api.example")])
        async with asyncio.timeout(1):
            await until(lambda: receiver.posts)
        (shown,) = await alerts(harness)
        (post,) = receiver.posts
    assert (post.json, post.headers["atoll-event"]) == (shown, "alert")
    key = bytes.fromhex(harness.home.alert_webhook_key.read_text())
    sent = dict(part.split("=", 1) for part in post.headers["atoll-signature"].split(","))
    assert sent["v1"] == hmac.new(key, sent["t"].encode() + b"." + post.body, hashlib.sha256).hexdigest()
    assert not harness.home.ask_webhook_key.exists()


@with_harness
async def test_a_webhook_that_fails_is_tried_again_and_then_noted(harness: Harness) -> None:
    with receiving() as receiver, pytest.MonkeyPatch.context() as patch:
        patch.setattr("atoll.supervisor.lifecycle.untold.WAITS_S", (0.01, 0.01))
        receiver.reply = lambda _: (503, b"", {})
        ref = await with_webhook(harness, receiver.url)
        harness.system.decisions.add(ref, [decision("api.example")])
        await until(lambda: len(receiver.posts) == 3)
        for _ in range(500):
            if (noted := await audited(harness))[-1]["act"] == "alert.untold":
                break
            await asyncio.sleep(0.01)
    assert noted[-1]["details"]["reason"] == "status 503"


@with_harness
async def test_whoever_follows_gets_each_new_alert_once(harness: Harness) -> None:
    ref = (await harness.create())["sandbox_id"]
    decisions = harness.system.decisions
    decisions.add(ref, [decision("before.example")])
    following = asyncio.create_task(harness.ask("GET", "/v1/alerts/follow?newest=1"))
    await asyncio.sleep(0.05)
    decisions.add(ref, [decision("api.example", secrets=("bank",))])
    await asyncio.sleep(0.05)
    harness.system.alerts.close()
    lines = [json.loads(line) for line in (await following).body.splitlines() if line]
    assert [one["rule"] for page in lines for one in page["alerts"]] == ["host", "secret"]


def test_the_settings_of_alerts_are_checked() -> None:
    read = read_settings({"ATOLL_ALERT_RULES": "host canary", "ATOLL_ALERT_REFUSALS": "5"})
    assert (read.alert_rules, read.alert_refusals) == ("host canary", 5)
    assert read_settings({"ATOLL_ALERT_RULES": "none"}).alert_rules == "none"
    for name, value in (
        ("ATOLL_ALERT_RULES", "hosts"),
        ("ATOLL_ALERT_REFUSALS", "0"),
        ("ATOLL_ALERTS_A_MINUTE", "0"),
        ("ATOLL_ALERT_WEBHOOK", "http://example.com/"),
    ):
        with pytest.raises(InvalidSpecError, match=name):
            read_settings({name: value})
