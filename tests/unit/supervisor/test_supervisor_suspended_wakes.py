"""Data that comes for a suspended sandbox wakes it: once, not too often, and through the door of all wakes."""

from __future__ import annotations

import asyncio

import pytest

from atoll.errors import InvalidSpecError
from atoll.supervisor.monitors.suspended_wakes import PAUSES_S, WAKE_EVERY_S, WAKES_AT_ONCE
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import Lifecycle
from tests.unit.supervisor.fakes import FakeGuest, FakeLink
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of

WOKEN = {"lifecycle": {"wake_on_data": True}}


async def asleep(harness: Harness, **spec: object) -> Sandbox:
    """A new sandbox that sleeps with an open connection."""
    made = await harness.create(**{**WOKEN, **spec})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await sleep(harness, sandbox)
    return sandbox


async def sleep(harness: Harness, sandbox: Sandbox) -> None:
    assert sandbox.running is not None
    link = sandbox.running.link
    assert isinstance(link, FakeLink)
    link.is_held = True
    await harness.asleep({"sandbox_id": sandbox.sandbox_id})


def watch_of(sandbox: Sandbox) -> FakeGuest:
    assert isinstance(sandbox.link, FakeLink)
    return sandbox.link.guest


def log_of(harness: Harness, sandbox: Sandbox) -> str:
    return harness.system.paths.console(sandbox.sandbox_id).read_text()


async def until_awake(harness: Harness, sandbox: Sandbox) -> None:
    await harness.until(lambda: sandbox.row.state == "running")
    async with sandbox.lock:
        pass


@with_harness
async def test_data_wakes_a_sleeper_with_its_connections_and_the_log_says_so(harness: Harness) -> None:
    sandbox = await asleep(harness)
    link = sandbox.link
    watch_of(sandbox).come()
    await until_awake(harness, sandbox)
    assert sandbox.running is not None
    assert sandbox.running.link is link
    assert "data came from chat.example:443\n" in log_of(harness, sandbox)
    await sleep(harness, sandbox)
    assert watch_of(sandbox).is_watched


@with_harness
async def test_only_those_that_want_it_are_watched(harness: Harness) -> None:
    assert not watch_of(await asleep(harness, lifecycle={})).is_watched
    with pytest.raises(InvalidSpecError, match="auto_resume"):
        Lifecycle(wake_on_data=True, auto_resume=False).check()


@with_harness
async def test_a_use_and_data_at_once_wake_it_once(harness: Harness) -> None:
    sandbox = await asleep(harness)
    path = f"/v1/sandboxes/{sandbox.sandbox_id}/wake"
    uses = [asyncio.create_task(harness.ask("POST", path)) for _ in range(3)]
    watch_of(sandbox).come()
    assert [answer.status for answer in await asyncio.gather(*uses)] == [200] * 3
    await harness.until(lambda: not harness.system.tasks.busy)
    assert sandbox.row.generation == 2


@with_harness
async def test_one_that_wakes_too_often_waits_and_is_not_forgotten(harness: Harness) -> None:
    sandbox = await asleep(harness)
    for _ in range(WAKES_AT_ONCE):
        watch_of(sandbox).come()
        await until_awake(harness, sandbox)
        await sleep(harness, sandbox)
    watch_of(sandbox).come()
    await harness.until(lambda: "it has woken often, so it wakes in 60 s" in log_of(harness, sandbox))
    harness.boot_s += WAKE_EVERY_S - 1
    await asyncio.sleep(0.6)
    assert sandbox.row.state == "suspended"
    # a client's use does not wait, and what was to wake it is read then
    assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/wake")).status == 200
    await sleep(harness, sandbox)
    assert watch_of(sandbox).is_watched
    watch_of(sandbox).come()
    harness.boot_s += WAKE_EVERY_S
    await until_awake(harness, sandbox)


@with_harness
async def test_a_wake_that_fails_is_tried_again_after_a_while(harness: Harness) -> None:
    sandbox = await asleep(harness)
    begun = len(harness.host.calls)
    harness.host.fail_next("start")
    watch_of(sandbox).come()
    await harness.until(lambda: len(harness.host.calls) > begun and not harness.system.tasks.busy)
    assert sandbox.row.state == "suspended"
    assert harness.system._steps.suspended_wakes.waiting

    def is_tried_again() -> bool:
        # The pause begins when the failure has been told, which may be later than the clock's first step.
        harness.boot_s += PAUSES_S[0]
        return sandbox.row.state == "running"

    await harness.until(is_tried_again)
    await until_awake(harness, sandbox)


@with_harness
async def test_a_drained_home_wakes_it_after_the_drain(harness: Harness) -> None:
    sandbox = await asleep(harness)
    assert (await harness.ask("POST", "/v1/drain")).status == 200
    watch_of(sandbox).come()
    await harness.until(lambda: "wakes for its data later: this home is drained" in log_of(harness, sandbox))
    assert sandbox.row.state == "suspended"
    assert (await harness.ask("DELETE", "/v1/drain")).status == 200
    harness.boot_s += 3600
    await until_awake(harness, sandbox)


@with_harness
async def test_an_unplugged_one_sleeps_on(harness: Harness) -> None:
    sandbox = await asleep(harness)
    watch = watch_of(sandbox)
    assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/unplug")).status == 200
    watch.come()
    await asyncio.sleep(0.05)
    assert sandbox.row.state == "suspended"
    assert not harness.system._steps.suspended_wakes.waiting


@with_harness_of(Settings(pool_size=0, idle_exit_s=0.01))
async def test_the_supervisor_stays_for_one_that_data_may_wake(harness: Harness) -> None:
    sandbox = await asleep(harness)
    await harness.until(lambda: not harness.system.tasks.busy)
    harness.system.keeper._asked_at_s -= 60
    assert not harness.system.keeper.may_leave()
    harness.system.keeper._asked_at_s -= 60
    watch_of(sandbox).came = None  # as when the last connection has ended
    assert harness.system.keeper.may_leave()


@with_harness
async def test_what_comes_while_an_idle_one_falls_asleep_wakes_it_again(harness: Harness) -> None:
    made = await harness.create(lifecycle={"wake_on_data": True, "idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    assert sandbox.running is not None
    link = sandbox.running.link
    assert isinstance(link, FakeLink)
    link.is_held = link.guest.is_fresh = True
    going_on = harness.host.hold("checkpoint")

    def falls_asleep() -> bool:
        harness.boot_s += 1
        return any(call.method == "checkpoint" for call in harness.host.calls)

    await harness.until(falls_asleep)
    link.received += 100
    going_on.set()
    await harness.until(lambda: sandbox.row.generation == 2)
    await until_awake(harness, sandbox)


@with_harness
async def test_a_question_of_the_guest_keeps_none_awake_that_the_answer_wakes(harness: Harness) -> None:
    made = await harness.create(lifecycle={"wake_on_data": True, "idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    (link,) = harness.links.open.values()
    link.asked_s = 5.0

    def suspended() -> bool:
        harness.boot_s += 1
        return sandbox.row.state == "suspended"

    await harness.until(suspended)
