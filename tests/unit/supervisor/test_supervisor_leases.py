"""Leases: what their end does, and that nothing but time itself brings it about."""

from __future__ import annotations

import contextlib
import random
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import AsleepError, NoSpaceError, StateError
from atoll.protocol import DialRequest
from atoll.supervisor.state.leases import LeaseTable
from tests.unit.supervisor.harness import Harness, with_harness


def test_what_is_due_is_told_once_and_in_order() -> None:
    inventory = LeaseTable()
    inventory.set("b", 20.0)
    inventory.set("a", 10.0)
    inventory.set("c", 30.0)
    assert inventory.next_s() == 10.0
    assert inventory.take(9.9) == []
    assert inventory.take(20.0) == ["a", "b"]
    assert inventory.take(20.0) == []
    assert inventory.next_s() == 30.0


def test_only_what_was_said_last_counts() -> None:
    inventory = LeaseTable()
    for due_s in (10.0, 30.0, 20.0):
        inventory.set("a", due_s)
    inventory.set("b", 5.0)
    inventory.set("b", None)
    assert inventory.take(15.0) == []
    assert inventory.take(25.0) == ["a"]
    assert inventory.take(1e9) == []
    assert inventory.next_s() is None


def test_a_table_agrees_with_a_plain_list_whatever_is_done_and_stays_small() -> None:
    dice, inventory, plain, now_s = random.Random(7), LeaseTable(), dict[str, float](), 0.0
    for _ in range(5000):
        name, due_s = f"s{dice.randrange(20)}", now_s + dice.uniform(0, 50)
        if dice.random() < 0.2:
            inventory.set(name, None)
            plain.pop(name, None)
        else:
            inventory.set(name, due_s)
            plain[name] = due_s
        now_s += dice.random()
        due = sorted((due_s, name) for name, due_s in plain.items() if due_s <= now_s)
        assert inventory.take(now_s) == [name for _, name in due]
        for _, name in due:
            del plain[name]
        assert inventory.next_s() == min(plain.values(), default=None)
    assert len(inventory._heap) <= 2 * 20 + 64


def _one(made: Any, what: str = "") -> str:
    return f"/v1/sandboxes/{made['sandbox_id']}{what}"


async def _info(harness: Harness, made: Any) -> Any:
    return (await harness.ask("GET", _one(made))).json


def _state(harness: Harness, made: Any) -> str:
    found = [one for one in harness.system.inventory.all() if one.sandbox_id == made["sandbox_id"]]
    return found[0].row.state if found else "gone"


@pytest.mark.parametrize(
    ("then", "state"), [("kill", "gone"), ("suspend", "suspended"), ("stop", "suspended")]
)
def test_the_end_of_a_lease_does_what_was_said(then: str, state: str) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        made = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": then})
        other = await harness.create()
        assert made["ends_at"] - made["started_at"] == pytest.approx(60, abs=5)
        harness.boot_s += 59
        assert (await _info(harness, made))["state"] == "running"
        harness.boot_s += 2
        await harness.until(lambda: _state(harness, made) == state)
        assert _state(harness, other) == "running"
        if state != "gone":
            info = await _info(harness, made)
            assert (info["ends_at"], info["has_memory"]) == (None, then == "suspend")
            assert harness.agents.flushed == (then == "stop")

    test()


@with_harness
async def test_what_sleeps_is_woken_by_use_under_a_new_lease(harness: Harness) -> None:
    made = await harness.create(
        lifecycle={"ttl_s": 60, "on_expiry": "suspend", "wake_ttl_s": 300},
    )
    for _ in range(2):
        harness.boot_s += 400
        await harness.until(lambda: _state(harness, made) == "suspended")
        sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
        await harness.system.wakes.use(sandbox)
        assert sandbox.row.ends_boot_s == harness.boot_s + 300
    await harness.ask("POST", _one(made, "/suspend"))
    await harness.ask("POST", _one(made, "/resume"))
    assert sandbox.row.ends_boot_s == harness.boot_s + 60


@with_harness
async def test_a_use_of_what_runs_changes_no_lease(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    before = sandbox.row
    harness.boot_s += 30
    await harness.system.wakes.use(sandbox)
    assert sandbox.row is before


@pytest.mark.parametrize("state", ["pause", "suspend"])
def test_what_is_to_sleep_on_is_woken_by_no_use_but_when_it_is_asked_for(state: str) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        made = await harness.create(lifecycle={"auto_resume": False})
        sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
        await harness.ask("POST", _one(made, f"/{state}"))
        with pytest.raises(AsleepError):
            await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=1))
        assert sandbox.row.state == {"pause": "paused", "suspend": "suspended"}[state]
        assert (await harness.ask("POST", _one(made, "/wake"))).json["state"] == "running"
        harness.machine_of(made["sandbox_id"]).crash()
        await harness.until(lambda: sandbox.row.state == "crashed")
        await harness.system.wakes.use(sandbox)

    test()


@with_harness
async def test_a_timeout_is_moved_extended_and_taken_away(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": "suspend"})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    async def timeout(timeout_s: float | None, **more: object) -> float | None:
        answer = await harness.ask("POST", _one(made, "/lease"), {"ttl_s": timeout_s, **more})
        assert answer.status == 200, answer.body
        return None if sandbox.row.ends_boot_s is None else sandbox.row.ends_boot_s - harness.boot_s

    assert await timeout(10) == 10
    assert await timeout(90, extend_only=True) == 90
    assert await timeout(20, extend_only=True) == 90
    assert (await harness.ask("POST", _one(made, "/wake"), {"ttl_s": 30})).status == 200
    assert (await harness.ask("POST", _one(made, "/resume"), {"ttl_s": 95})).status == 200
    assert await timeout(1, extend_only=True) == 95
    assert await timeout(None) is None
    assert await timeout(50, extend_only=True) is None
    assert await timeout(0) is None
    assert sandbox.row.state == "suspended"
    refused = await harness.ask("POST", _one(made, "/lease"), {"ttl_s": 5})
    assert refused.json["code"] == StateError.code
    for wrong in (-1, 1e10, 1e999):
        answer = await harness.ask("POST", _one(made, "/resume"), {"ttl_s": wrong})
        assert answer.status == 400


@with_harness
async def test_a_lease_waits_for_what_is_going_on_and_an_extension_that_came_before_counts(
    harness: Harness,
) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60})
    other = await harness.create(lifecycle={"ttl_s": 60})
    sandbox, kept = (harness.system.inventory.sandbox(one["sandbox_id"]) for one in (made, other))
    async with kept.lock:
        async with sandbox.lock:
            extending = harness.system.tasks.spawn(harness.system.leases.set_lease(kept, 500))
            await harness.until(lambda: kept.lock._waiters)
            harness.boot_s += 61
            await harness.until(lambda: sandbox.lock._waiters)
            assert {sandbox.row.state, kept.row.state} == {"running"}
        await harness.until(lambda: _state(harness, made) == "gone")
    await extending
    await harness.until(lambda: not kept.lock.locked())
    assert kept.row.state == "running"
    harness.boot_s += 600
    await harness.until(lambda: _state(harness, other) == "gone")


@with_harness
async def test_a_lease_that_ended_while_no_supervisor_ran_ends_when_one_starts(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": "suspend"})
    later = await harness.create(lifecycle={"ttl_s": 600})
    await harness.crash()
    harness.boot_s += 100
    await harness.start()
    await harness.until(lambda: _state(harness, made) == "suspended")
    assert _state(harness, later) == "running"
    harness.boot_s += 501
    await harness.until(lambda: _state(harness, later) == "gone")


@with_harness
async def test_a_clock_that_jumps_ends_no_lease_and_no_life_and_keeps_none_going(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60}, limits={"lifetime_s": 80})

    def ends_in_s() -> float:
        return (harness.system.inventory.sandbox(made["sandbox_id"]).row.ends_at or 0) - harness.now_s

    for jump_s in (-100_000, 200_000):
        harness.now_s += jump_s
        await harness.until(lambda: 30 < ends_in_s() < 90)
        await harness.crash()
        await harness.start()
        assert _state(harness, made) == "running"
    harness.boot_s += 61
    await harness.until(lambda: _state(harness, made) == "gone")


@with_harness
async def test_after_another_boot_of_the_host_only_the_calendar_tells(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 1000}, limits={"lifetime_s": 5000})
    await harness.crash()
    harness.boot, harness.boot_s = "second", 3.0
    await harness.start()
    row = harness.system.inventory.sandbox(made["sandbox_id"]).row
    assert row.host_boot == "second"
    assert row.ends_boot_s == pytest.approx(1000, abs=60)
    harness.boot_s += 2000
    await harness.until(lambda: _state(harness, made) == "gone")


@with_harness
async def test_a_clock_that_was_set_before_another_boot_ends_no_life(harness: Harness) -> None:
    made = await harness.create(limits={"lifetime_s": 5000})
    for jump_s in (1_000_000, -2_000_000):
        harness.now_s += jump_s
        await harness.until(
            lambda: (
                abs(harness.system.inventory.sandbox(made["sandbox_id"]).row.created_at - harness.now_s) < 500
            )
        )
        await harness.crash()
        harness.boot, harness.boot_s = f"after {jump_s}", 3.0
        await harness.start()
        assert _state(harness, made) != "gone"
    harness.boot_s += 5001
    await harness.until(lambda: _state(harness, made) == "gone")


@with_harness
async def test_a_lease_that_cannot_be_ended_is_tried_again(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": "suspend"})
    harness.host.fail_next("checkpoint", NoSpaceError("full"))
    machine = harness.machine_of(made["sandbox_id"])
    harness.boot_s += 61
    await harness.until(lambda: "resume" in harness.host.methods(machine.machine_id))
    assert (await _info(harness, made))["state"] == "running"

    def tried_again() -> bool:
        harness.boot_s += 1
        return _state(harness, made) == "suspended"

    await harness.until(tried_again)


@with_harness
async def test_a_crashed_sandbox_is_killed_at_the_end_of_its_lease_if_that_was_said(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60})
    kept = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": "suspend"})
    for one in (made, kept):
        harness.machine_of(one["sandbox_id"]).crash()
    await harness.until(lambda: {_state(harness, made), _state(harness, kept)} == {"crashed"})
    harness.boot_s += 61
    await harness.until(lambda: _state(harness, made) == "gone")
    await harness.until(lambda: harness.system.inventory.sandbox(kept["sandbox_id"]).row.ends_at is None)
    assert _state(harness, kept) == "crashed"


@with_harness
async def test_a_fork_has_a_lease_of_its_own(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 60, "on_expiry": "suspend"})
    harness.boot_s += 50
    alike = (await harness.ask("POST", _one(made, "/fork"))).json[0]
    body = {"count": 2, "lifecycle": {"ttl_s": 500, "auto_resume": False}}
    others = (await harness.ask("POST", _one(made, "/fork"), body)).json
    harness.boot_s += 20
    await harness.until(lambda: _state(harness, made) == "suspended")
    assert _state(harness, alike) == "running"
    harness.boot_s += 50
    await harness.until(lambda: _state(harness, alike) == "suspended")
    assert [one["lifecycle"]["auto_resume"] for one in others] == [False, False]
    harness.boot_s += 431
    await harness.until(lambda: {_state(harness, one) for one in others} == {"gone"})


@with_harness
async def test_what_was_stopped_boots_from_its_disk_and_takes_part_in_nothing_that_needs_memory(
    harness: Harness,
) -> None:
    made = await harness.create()
    harness.machine_of(made["sandbox_id"]).memory = "dirty"
    stopped = await harness.ask("POST", _one(made, "/suspend"), {"memory": False})
    assert (stopped.json["state"], stopped.json["has_memory"]) == ("suspended", False)
    await harness.until(lambda: harness.links.open == {})
    for what in ("/fork", "/snapshots"):
        assert (await harness.ask("POST", _one(made, what))).json["code"] == StateError.code
    await harness.crash()
    await harness.start()
    assert (await _info(harness, made))["state"] == "suspended"
    woken = await harness.ask("POST", _one(made, "/resume"))
    assert (woken.json["state"], woken.json["has_memory"]) == ("running", True)
    assert harness.machine_of(made["sandbox_id"]).memory == "booted"


@with_harness
async def test_a_memory_that_was_kept_can_be_dropped(harness: Harness) -> None:
    made = await harness.create()
    for drop in ("/suspend", "/resume"):
        harness.machine_of(made["sandbox_id"]).memory = "dirty"
        await harness.ask("POST", _one(made, "/suspend"))
        assert (await harness.ask("POST", _one(made, drop), {"memory": False})).status == 200
        await harness.ask("POST", _one(made, "/resume"))
        assert harness.machine_of(made["sandbox_id"]).memory == "booted"


@with_harness
async def test_a_sandbox_that_cannot_be_stopped_runs_on(harness: Harness) -> None:
    made = await harness.create()
    harness.host.fail_next("pause")
    assert (await harness.ask("POST", _one(made, "/suspend"), {"memory": False})).status == 500
    assert (await _info(harness, made))["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).alive
    await harness.ask("POST", _one(made, "/pause"))
    assert (await harness.ask("POST", _one(made, "/suspend"), {"memory": False})).status == 200


@pytest.mark.parametrize("failing", ["freeze", "sync", "row"])
def test_a_paused_sandbox_that_cannot_be_stopped_is_still_paused(failing: str) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        made = await harness.create(lifecycle={"ttl_s": 600})
        paused = (await harness.ask("POST", _one(made, "/pause"))).json
        machine = harness.machine_of(made["sandbox_id"])
        with contextlib.ExitStack() as disk:
            if failing == "freeze":
                harness.host.fail_next("pause")
            elif failing == "sync":
                full = patch("atoll.supervisor.lifecycle.stop.sync_tree", side_effect=OSError(28, "full"))
                disk.enter_context(full)
            else:
                disk.enter_context(_full_once_it_was_thawed(harness))
            assert (await harness.ask("POST", _one(made, "/suspend"), {"memory": False})).status >= 500
        info = await _info(harness, made)
        assert {**info, "changed_at": 0} == {**paused, "changed_at": 0}
        assert machine.paused
        assert machine.alive
        assert (await harness.ask("POST", _one(made, "/resume"))).status == 200
        assert not machine.paused

    test()


def _full_once_it_was_thawed(harness: Harness) -> contextlib.AbstractContextManager[object]:
    """Let no row be written but those that say what is under way, and that the sandbox runs."""
    put, left = harness.system.database.put, iter([True, True])

    async def put_twice(*rows: Any, durable: bool = False) -> None:
        if not next(left, False):
            raise NoSpaceError("full")
        await put(*rows, durable=durable)

    return patch.object(harness.system.database, "put", put_twice)


@with_harness
async def test_a_network_is_changed_where_it_runs_and_where_it_sleeps(harness: Harness) -> None:
    made = await harness.create()
    (link,) = harness.links.open.values()
    await harness.ask("POST", _one(made, "/network"), {"network": "none"})
    assert link.policy == "none"
    await harness.ask("POST", _one(made, "/suspend"))
    await harness.ask("POST", _one(made, "/network"), {"network": "internet"})
    await harness.ask("POST", _one(made, "/wake"))
    (link,) = harness.links.open.values()
    assert link.policy == "internet"


@with_harness
async def test_attributes_change_together_with_a_network_and_others_stay(harness: Harness) -> None:
    made = await harness.create(attributes={"a": "1", "b": "2"})
    wanted = {"network": "none", "attributes": {"b": None, "c": "3"}}
    changed = await harness.ask("POST", _one(made, "/network"), wanted)
    assert changed.json["attributes"] == {"a": "1", "c": "3"}
    wanted = {"network": "internet", "attributes": {"d": "x" * 70_000}}
    refused = await harness.ask("POST", _one(made, "/network"), wanted)
    assert (refused.status, "over 64 KiB" in refused.body.decode()) == (400, True)
    (link,) = harness.links.open.values()
    assert link.policy == "none"


@with_harness
async def test_a_history_begins_at_once_and_is_kept_while_the_sandbox_sleeps(harness: Harness) -> None:
    made = await harness.create(limits={"vcpus": 1, "disk_mib": 100}, best_effort=True)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: harness.system.history.of(sandbox))
    await harness.ask("POST", _one(made, "/suspend"))
    sample, *_ = (await harness.ask("GET", _one(made, "/stats/history"))).json
    assert (sample["vcpus"], sample["cpu_percent"], sample["disk_limit_bytes"]) == (1.0, 0.0, 100 << 20)
    later = f"/stats/history?start={sample['at'] + 10_000}"
    assert (await harness.ask("GET", _one(made, later))).json == []
    assert (await harness.ask("GET", _one(made, "/stats/history?end=x"))).status == 400


@patch("atoll.supervisor.monitors.history._ASLEEP_MOST", 1)
@patch("atoll.supervisor.monitors.history._EVERY_S", 0.05)
@with_harness
async def test_histories_are_kept_of_so_many_that_sleep(harness: Harness) -> None:
    made = [await harness.create() for _ in range(3)]
    sandboxes = [harness.system.inventory.sandbox(each["sandbox_id"]) for each in made]
    await harness.until(lambda: all(harness.system.history.of(each) for each in sandboxes))
    await harness.ask("POST", _one(made[0], "/suspend"))
    # one that ran longer was measured later
    first, second = (harness.system.history.of(each)[-1].at for each in sandboxes[:2])
    await harness.until(lambda: harness.system.history.of(sandboxes[1])[-1].at > max(first, second))
    await harness.ask("POST", _one(made[1], "/suspend"))
    await harness.until(
        lambda: [bool(harness.system.history.of(each)) for each in sandboxes] == [False, True, True]
    )
