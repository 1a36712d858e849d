"""Idle sandboxes: what counts as activity, and that only its absence puts them to sleep."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.errors import AsleepError, NoSpaceError
from atoll.protocol import DialRequest
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.idleness import NEVER, Idleness, Reading, Tiers, tiers_of
from atoll.types import Lifecycle
from atoll.types.internal import BUILD_ATTRIBUTE
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


class Guest:
    """A sandbox that is read each second, by a clock that only this test moves."""

    def __init__(self, pause_s: float | None, suspend_s: float | None) -> None:
        self.idleness = Idleness()
        self.tiers = Tiers(pause_s, suspend_s)
        self.now_s, self.state = 1000.0, "running"
        self.cpu_s, self.payload_bytes = 0.0, 0
        self._look()

    def _look(self) -> None:
        self.idleness.look(self.state, self.tiers, self.now_s, self.now_s + 5000)
        if self.state == "running":
            self.idleness.read(Reading("m", self.cpu_s, self.payload_bytes), self.now_s)

    def live(self, seconds: int, *, cpu_s: float = 0.0, payload_bytes: int = 0) -> str | None:
        """Use so much in each second. Returns how the guest is to sleep at the end."""
        for _ in range(seconds):
            self.now_s += 1
            self.cpu_s += cpu_s
            self.payload_bytes += payload_bytes
            self._look()
        return self.idleness.due(self.state, self.now_s)


def test_an_idle_one_is_paused_and_then_suspended() -> None:
    guest = Guest(60, 600)
    assert guest.live(59) is None
    assert guest.live(1) == "paused"
    guest.state = "paused"
    assert guest.live(539) is None
    assert guest.live(1) == "suspended"


@pytest.mark.parametrize(
    ("pause_s", "suspend_s", "sleep"),
    [(None, 60, "suspended"), (60, None, "paused"), (60, 60, "suspended"), (None, None, None)],
)
def test_each_tier_can_be_off(pause_s: float | None, suspend_s: float | None, sleep: str | None) -> None:
    assert Guest(pause_s, suspend_s).live(100) == sleep


@pytest.mark.parametrize(
    "use",
    [{"cpu_s": 1.0}, {"cpu_s": 0.05}, {"payload_bytes": 5000}],
    ids=["a silent build", "a build that gets little", "a transfer"],
)
def test_work_is_activity(use: dict[str, Any]) -> None:
    guest = Guest(None, 60)
    assert guest.live(300, **use) is None
    assert guest.live(60) == "suspended"


@pytest.mark.parametrize(
    "use",
    [{"cpu_s": 0.025}, {"payload_bytes": 50}, {"payload_bytes": -24}],
    ids=["a daemon that looks around", "heartbeats", "address lookups"],
)
def test_noise_is_no_activity(use: dict[str, Any]) -> None:
    assert Guest(None, 60).live(61, **use) == "suspended"


def test_one_request_is_activity() -> None:
    guest = Guest(None, 60)
    guest.live(50)
    guest.live(1, payload_bytes=700)
    assert guest.live(59) is None
    assert guest.live(1) == "suspended"


def test_a_guest_whose_processor_time_nobody_counts_is_never_idle() -> None:
    idleness = Idleness()
    for now_s in range(100):
        idleness.look("running", Tiers(None, 10), now_s, now_s)
        idleness.read(Reading("m", None, 0), now_s)
    assert idleness.due("running", 99) is None


def test_another_machine_begins_anew() -> None:
    guest = Guest(None, 60)
    guest.live(50)
    guest.idleness.read(Reading("another", 0.0, 0), guest.now_s)
    assert guest.live(5) is None
    told = guest.idleness.told("running")
    assert told is not None
    assert told.last == "start"


def test_a_client_keeps_it_awake_until_then_and_can_end_that() -> None:
    guest = Guest(None, 60)
    guest.idleness.keep_awake(guest.now_s, guest.now_s + 600)
    assert guest.live(659) is None
    assert guest.live(1) == "suspended"
    guest.idleness.keep_awake(guest.now_s, guest.now_s + 600)
    guest.idleness.keep_awake(guest.now_s, guest.now_s)
    assert guest.live(60) == "suspended"


def test_what_only_the_guest_says_counts_for_an_hour_after_what_the_host_saw() -> None:
    guest = Guest(None, 60)
    assert not guest.idleness.said(guest.now_s, 0, 0)
    assert guest.idleness.said(guest.now_s, 600, 0)
    assert guest.live(659) is None
    assert guest.live(1) == "suspended"
    assert guest.idleness.said(guest.now_s, 0, 1)
    told = guest.idleness.told("running")
    assert told is not None
    assert told.last == "command"
    guest.live(60)
    assert guest.idleness.said(guest.now_s, 1e9, 5)
    assert guest.live(3600 - 720 + 60) == "suspended"
    assert not guest.idleness.said(guest.now_s, 600, 1)
    guest.live(1, cpu_s=1)
    assert guest.idleness.said(guest.now_s, 600, 1)


def test_what_an_answer_to_the_supervisor_costs_is_no_activity() -> None:
    guest = Guest(None, 60)
    guest.live(59)
    guest.cpu_s += 1
    guest.idleness.excuse(guest.cpu_s)
    assert guest.live(1) == "suspended"


def test_work_of_the_supervisor_is_no_activity() -> None:
    guest = Guest(None, 60)
    guest.live(50)
    with guest.idleness.unnoticed():
        guest.live(3, cpu_s=1)
    guest.live(1, cpu_s=1)
    assert guest.live(6) == "suspended"


def test_a_guest_that_traffic_has_thawed_runs_for_a_moment_and_is_as_idle_as_before() -> None:
    guest = Guest(60, 600)
    guest.live(60)
    guest.state = "paused"
    guest.live(500)
    guest.state = "running"
    assert guest.live(2) is None
    assert guest.live(1) == "paused"
    guest.state = "paused"
    assert guest.live(40) == "suspended"


def test_clients_are_told_in_the_calendars_time() -> None:
    guest = Guest(60, 600)
    guest.live(30)
    told = guest.idleness.told("running")
    assert told is not None
    assert (told.since, told.pauses_at, told.suspends_at) == (6000, 6060, 6600)
    paused = guest.idleness.told("paused")
    assert paused is not None
    assert (paused.pauses_at, paused.suspends_at) == (None, 6600)
    assert guest.idleness.told("suspended") is None


@pytest.mark.parametrize(
    ("lifecycle", "default", "most_s", "tiers"),
    [
        (Lifecycle(), NEVER, None, NEVER),
        (Lifecycle(), Tiers(30, 600), None, Tiers(30, 600)),
        (Lifecycle(idle_pause_s=0, idle_suspend_s=0), Tiers(30, 600), None, NEVER),
        (Lifecycle(idle_pause_s=5), Tiers(30, 600), 300, Tiers(5, 300)),
        (Lifecycle(idle_suspend_s=0), NEVER, 300, Tiers(None, 300)),
        (Lifecycle(idle_suspend_s=100), NEVER, 300, Tiers(None, 100)),
    ],
)
def test_a_lifecycle_counts_before_the_homes_default_and_a_team_before_both(
    lifecycle: Lifecycle, default: Tiers, most_s: float | None, tiers: Tiers
) -> None:
    assert tiers_of(lifecycle, default, most_s) == tiers


def _one(made: Any, what: str = "") -> str:
    return f"/v1/sandboxes/{made['sandbox_id']}{what}"


async def _idle(harness: Harness, made: Any, state: str) -> Any:
    """Let the time pass until the sandbox is in this state. Returns its information."""
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    def passed() -> bool:
        harness.boot_s += 1
        return sandbox.row.state == state

    await harness.until(passed)
    return (await harness.ask("GET", _one(made))).json


@with_harness
async def test_an_idle_sandbox_is_paused_then_suspended_and_says_why(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_pause_s": 1, "idle_suspend_s": 1000})
    other = await harness.create()
    paused = await _idle(harness, made, "paused")
    assert paused["sleep_cause"] == "idle"
    assert paused["idle"]["suspends_at"] > paused["idle"]["since"]
    (link, _) = harness.links.open.values()
    assert "end_dialled" not in link.calls
    harness.boot_s += 1000
    suspended = await _idle(harness, made, "suspended")
    assert (suspended["sleep_cause"], suspended.get("idle")) == ("idle", None)
    await harness.ask("POST", _one(made, "/resume"))
    assert (await harness.ask("GET", _one(made))).json["sleep_cause"] is None
    assert (await harness.ask("GET", _one(other))).json["state"] == "running"


@with_harness
async def test_any_use_thaws_what_was_only_idle_even_without_auto_resume(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_pause_s": 1, "auto_resume": False})
    await _idle(harness, made, "paused")
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.wakes.use(sandbox)
    assert sandbox.row.state == "running"
    await _idle(harness, made, "paused")
    assert (await harness.ask("POST", _one(made, "/pause"))).json["sleep_cause"] == "request"
    with pytest.raises(AsleepError):
        await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=1))
    assert "end_dialled" in next(iter(harness.links.open.values())).calls


@with_harness
async def test_one_that_data_thaws_at_once_has_a_while_to_handle_it(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_pause_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    thawing: list[asyncio.Task[object]] = []

    def data_comes(*_: object) -> None:
        thawing.append(asyncio.create_task(harness.system.wakes.use(sandbox)))

    watch = harness.system._steps.paused_wakes.watch
    harness.system._steps.paused_wakes.watch = data_comes  # type: ignore[method-assign,assignment]

    def passed() -> bool:
        if not thawing:
            harness.boot_s += 1
        return bool(thawing) and thawing[0].done()

    await harness.until(passed)
    harness.system._steps.paused_wakes.watch = watch  # type: ignore[method-assign]
    harness.boot_s += 0.5
    await asyncio.sleep(0.6)  # two looks
    assert sandbox.row.state == "running"
    await _idle(harness, made, "paused")


@with_harness
async def test_questions_are_no_use_and_requests_are(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1000})
    idleness = harness.system.inventory.sandbox(made["sandbox_id"]).idleness
    await harness.until(lambda: idleness.told("running"))
    harness.boot_s += 10
    before = idleness.told("running")
    for question in ("", "/stats", "/logs", "/stats/history"):
        assert (await harness.ask("GET", _one(made, question))).status == 200
    assert idleness.told("running") == before
    await harness.ask("POST", _one(made, "/lease"), {"ttl_s": None})
    told = idleness.told("running")
    assert told is not None
    assert told.last == "use"
    await harness.ask("POST", "/v1/sandboxes/missing/pause")


@with_harness
async def test_who_compares_files_neither_wakes_a_sandbox_nor_keeps_it_awake(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1000})
    other = await harness.create(lifecycle={"idle_suspend_s": 1000})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    (harness.home.images / sandbox.row.image_digest / "rootfs").mkdir(parents=True)
    idleness = sandbox.idleness

    async def read_again() -> None:
        harness.boot_s += 10
        now_s = harness.boot_s
        await harness.until(lambda: idleness._before is not None and idleness._before[0] >= now_s)

    await read_again()
    before = idleness.suspends_s()
    compared = {"base": other["sandbox_id"]}
    assert (await harness.ask("POST", _one(made, "/diff"), compared)).status == 200
    assert harness.agents.flushed == 2, "what the guests had in memory is part of it"
    await read_again()
    assert idleness.suspends_s() == before
    suspended = await _idle(harness, made, "suspended")
    assert (await harness.ask("POST", _one(made, "/diff"), compared)).status == 200
    assert (await harness.ask("GET", _one(made))).json["state"] == suspended["state"]


@with_harness
async def test_a_request_without_an_answer_is_activity_for_ten_minutes(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    (link,) = harness.links.open.values()
    link.asked_s = 599.0

    def noticed() -> bool:
        harness.boot_s += 1
        told = sandbox.idleness.told("running")
        return told is not None and told.last == "request"

    await harness.until(noticed)
    assert sandbox.row.state == "running"
    link.asked_s = 600.0
    await _idle(harness, made, "suspended")


@with_harness
async def test_one_that_cannot_be_suspended_runs_on_and_is_tried_again(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    harness.host.fail_next("checkpoint", NoSpaceError("the disk is full"))
    await _idle(harness, made, "suspended")
    machine_id = next(call.machine_id for call in harness.host.calls if call.method == "checkpoint")
    assert harness.host.methods(machine_id).count("checkpoint") == 2
    assert sandbox.row.sleep_cause == "idle"


@with_harness
async def test_an_operation_in_progress_is_activity_and_an_unplugged_one_stays(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    def noticed() -> bool:
        harness.boot_s += 1
        told = sandbox.idleness.told("running")
        return told is not None and told.last == "operation"

    async with sandbox.lock:
        await harness.until(noticed)
        assert sandbox.row.state == "running"
    unplugged = await harness.create(lifecycle={"idle_suspend_s": 1})
    await harness.ask("POST", _one(unplugged, "/unplug"), {"reason": "it looks bad"})
    await _idle(harness, made, "suspended")
    assert (await harness.ask("GET", _one(unplugged))).json["state"] == "paused"


async def _noticed(harness: Harness, made: Any, activity: str) -> None:
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    def noticed() -> bool:
        harness.boot_s += 1
        told = sandbox.idleness.told(sandbox.row.state)
        return told is not None and told.last == activity

    await harness.until(noticed)


@with_harness
async def test_keep_awake_wakes_and_outlives_the_supervisor(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    await _idle(harness, made, "suspended")
    kept = (await harness.ask("POST", _one(made, "/keep-awake"), {"seconds": 80_000})).json
    assert kept["state"] == "running"
    assert kept["idle"]["last"] == "keep_awake"
    await harness.crash()
    await harness.start()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.idleness.told("running"))
    harness.boot_s += 79_000
    await _noticed(harness, made, "start")
    assert sandbox.row.state == "running"
    await harness.ask("POST", _one(made, "/keep-awake"), {"seconds": 0})
    assert sandbox.row.awake_until is None
    await _idle(harness, made, "suspended")
    assert (await harness.ask("POST", _one(made, "/keep-awake"), {"seconds": 90_000})).status == 400


@with_harness
async def test_a_command_that_a_client_waits_for_keeps_it_awake(harness: Harness) -> None:
    harness.agents.waiting = 1
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    await _noticed(harness, made, "command")
    harness.agents.waiting = 0
    await _idle(harness, made, "suspended")


@with_harness
async def test_an_agent_that_does_not_answer_keeps_nothing_awake(harness: Harness) -> None:
    harness.agents.waiting = -1
    made = await harness.create(lifecycle={"idle_suspend_s": 1})
    await _idle(harness, made, "suspended")


@with_harness_of(Settings(pool_size=0, idle_suspend_s=1))
async def test_the_home_has_a_default_that_builds_do_not_follow(harness: Harness) -> None:
    made = await harness.create()
    build = await harness.create(lifecycle={"idle_suspend_s": 1})
    building = harness.system.inventory.sandbox(build["sandbox_id"])
    building.row = building.row.but(attributes={BUILD_ATTRIBUTE: "b1"})
    off = await harness.create(lifecycle={"idle_suspend_s": 0})
    await _idle(harness, made, "suspended")
    for awake in (build, off):
        assert (await harness.ask("GET", _one(awake))).json["state"] == "running"
