"""Unplugged sandboxes: cut before anything is waited for, frozen, refused to every use, and so until replugged."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from atoll.errors import EngineError, UnpluggedError
from atoll.protocol import DialRequest
from atoll.supervisor.state.unplug_marks import UnplugMark
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Answer, Harness, with_harness

WHY = {"reason": "it scans the network"}


async def act(harness: Harness, made: Any, what: str, body: object = None) -> Answer:
    return await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/{what}", body)


async def info(harness: Harness, made: Any) -> Any:
    return (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json


def link_of(harness: Harness) -> FakeLink:
    (link,) = harness.links.open.values()
    return link


@with_harness
async def test_a_running_sandbox_is_cut_before_it_is_frozen(harness: Harness) -> None:
    made = await harness.create()
    link, machine = link_of(harness), harness.machine_of(made["sandbox_id"])
    was_paused_when_cut: list[bool] = []
    cut = link.cut

    def noting_cut() -> None:
        was_paused_when_cut.append(machine.paused)
        cut()

    link.cut = noting_cut  # type: ignore[method-assign]
    answer = await act(harness, made, "unplug", WHY)
    assert answer.status == 200
    assert answer.json["unplugged"]["reason"] == WHY["reason"]
    assert answer.json["unplugged"]["ran"] is True
    assert answer.json["state"] == "paused"
    assert machine.paused
    assert was_paused_when_cut[0] is False


@with_harness
async def test_no_use_wakes_it_and_every_one_says_why(harness: Harness) -> None:
    made = await harness.create()
    await act(harness, made, "unplug", WHY)
    for what, body in (
        ("resume", None),
        ("wake", None),
        ("lease", {"ttl_s": 60}),
        ("suspend", {"memory": False}),
    ):
        answer = await act(harness, made, what, body)
        assert answer.status == 409, what
        assert answer.json["code"] == "unplugged", what
        assert WHY["reason"] in answer.json["message"], what
        assert "atoll replug" in answer.json["hint"], what
    with pytest.raises(UnpluggedError):
        await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=80))
    assert harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_traffic_does_not_wake_it(harness: Harness) -> None:
    made = await harness.create()
    await harness.pause_as_idle(made)
    await act(harness, made, "unplug")
    for _ in range(30):
        link_of(harness).received += 1000
        await asyncio.sleep(0.01)
    assert harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_what_only_looks_at_it_works(harness: Harness) -> None:
    made = await harness.create(name="odd")
    await act(harness, made, "unplug", WHY)
    assert (await info(harness, made))["unplugged"]["reason"] == WHY["reason"]
    assert (await harness.ask("GET", "/v1/sandboxes/odd/stats")).status == 200
    assert "unplugged: it scans" in (await harness.ask("GET", "/v1/sandboxes/odd/logs")).json["text"]
    assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"][0]["unplugged"] is not None


@with_harness
async def test_it_goes_on_where_it_was_when_it_is_replugged(harness: Harness) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    await act(harness, made, "unplug")
    answer = await act(harness, made, "replug")
    assert answer.json["state"] == "running"
    assert answer.json["unplugged"] is None
    assert not machine.paused
    assert link_of(harness).calls[-1] == "mend"


@with_harness
async def test_an_idle_one_stays_paused_and_is_woken_by_data_again(harness: Harness) -> None:
    made = await harness.create()
    await harness.pause_as_idle(made)
    await act(harness, made, "unplug")
    assert (await act(harness, made, "replug")).json["state"] == "paused"
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    def woken() -> bool:
        link_of(harness).received += 1000
        return sandbox.row.state == "running"

    await harness.until(woken)


@with_harness
async def test_one_that_sleeps_is_only_marked_and_wakes_after_it_was_replugged(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    assert (await act(harness, made, "unplug")).json["state"] == "suspended"
    assert (await act(harness, made, "resume")).json["code"] == "unplugged"
    assert (await act(harness, made, "replug")).json["state"] == "suspended"
    assert (await act(harness, made, "resume")).json["state"] == "running"
    assert not link_of(harness).was_cut


@with_harness
async def test_it_may_be_suspended_and_stays_unplugged_over_a_restart(harness: Harness) -> None:
    made = await harness.create()
    await act(harness, made, "unplug")
    await harness.asleep(made)
    await harness.aclose()
    await harness.start()
    found = await info(harness, made)
    assert (found["state"], found["unplugged"]["ran"]) == ("suspended", True)
    assert (await act(harness, made, "wake")).json["code"] == "unplugged"
    assert (await act(harness, made, "replug")).status == 200
    assert (await act(harness, made, "wake")).json["state"] == "running"
    assert not link_of(harness).was_cut


@with_harness
async def test_a_lease_that_would_stop_it_keeps_its_memory(harness: Harness) -> None:
    made = await harness.create(lifecycle={"ttl_s": 50, "on_expiry": "stop"})
    await act(harness, made, "unplug")
    harness.boot_s += 100
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.state == "suspended")
    assert sandbox.row.has_memory
    assert sandbox.row.unplugged is not None


@with_harness
async def test_its_copies_have_no_network(harness: Harness) -> None:
    made = await harness.create()
    await act(harness, made, "unplug")
    (copy,) = (await act(harness, made, "fork")).json
    assert (copy["network"], copy["state"], copy["unplugged"]) == ("none", "running", None)
    snapshot = (await act(harness, made, "snapshots")).json
    restored = await harness.create(from_snapshot=snapshot["snapshot_id"])
    assert (restored["network"], restored["unplugged"]) == ("none", None)
    assert (await info(harness, made))["network"] == "internet"


@with_harness
async def test_a_new_supervisor_cuts_it_before_anything_else_and_keeps_it_frozen(harness: Harness) -> None:
    made = await harness.create()
    await act(harness, made, "unplug", WHY)
    await harness.crash()
    link = link_of(harness)
    link.calls.clear()
    starts = len(harness.host.calls)
    await harness.start()
    assert link.calls[0] == "cut"
    assert "resume" not in {call.method for call in harness.host.calls[starts:]}
    found = await info(harness, made)
    assert (found["state"], found["unplugged"]["reason"]) == ("paused", WHY["reason"])
    assert (await act(harness, made, "replug")).json["state"] == "running"


@with_harness
async def test_a_link_that_was_found_cut_is_that_of_a_sandbox_that_was_being_unplugged(
    harness: Harness,
) -> None:
    made = await harness.create()
    link_of(harness).cut()
    await harness.crash()
    await harness.start()
    found = await info(harness, made)
    assert found["state"] == "paused"
    assert "supervisor ended" in found["unplugged"]["reason"]
    assert harness.machine_of(made["sandbox_id"]).paused


@pytest.mark.parametrize("restarted", [False, True])
def test_a_mark_that_a_client_left_counts(restarted: bool) -> None:
    @with_harness
    async def marked(harness: Harness) -> None:
        made = await harness.create()
        path = harness.system.paths.unplug_mark(made["sandbox_id"])
        if restarted:
            await harness.crash()
        path.write_bytes(msgspec.json.encode(UnplugMark(at=5.0, reason="by hand")))
        harness.system.paths.unplug_stamp.touch()
        if restarted:
            await harness.start()
        sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
        await harness.until(lambda: sandbox.row.unplugged is not None)
        assert sandbox.row.unplugged is not None
        assert (sandbox.row.unplugged.reason, sandbox.row.unplugged.ran) == ("by hand", True)
        assert harness.machine_of(made["sandbox_id"]).paused
        assert link_of(harness).was_cut
        await harness.until(lambda: not path.exists())

    marked()


@with_harness
async def test_a_damaged_mark_counts(harness: Harness) -> None:
    made = await harness.create()
    harness.system.paths.unplug_mark(made["sandbox_id"]).write_bytes(b"{")
    harness.system.paths.unplug_stamp.touch()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.unplugged is not None)


@with_harness
async def test_if_it_cannot_be_frozen_it_is_cut_all_the_same(harness: Harness) -> None:
    made = await harness.create()
    harness.host.fail_next("pause", EngineError("the freezer is stuck"))
    answer = await act(harness, made, "unplug", WHY)
    assert answer.status == 500
    assert "cannot be frozen" in answer.json["message"]
    assert "freezer is stuck" in answer.json["message"]
    assert link_of(harness).was_cut
    found = await info(harness, made)
    assert (found["state"], found["unplugged"]["reason"]) == ("running", WHY["reason"])
    with pytest.raises(UnpluggedError):
        await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=80))
    assert (await act(harness, made, "unplug")).json["state"] == "paused"  # another try


@with_harness
async def test_if_it_cannot_be_cut_it_is_frozen_and_the_error_says_so(harness: Harness) -> None:
    made = await harness.create()
    link_of(harness).fail_cut = True
    answer = await act(harness, made, "unplug")
    assert "refused to cut" in answer.json["message"]
    assert harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_it_is_cut_while_an_operation_has_its_lock_and_frozen_after_it(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    async with sandbox.lock:
        unplugging = asyncio.create_task(harness.system.unplugs.unplug(sandbox))
        await harness.until(lambda: link_of(harness).was_cut)
        with pytest.raises(UnpluggedError):
            await harness.system.dialling.dial(DialRequest(sandbox=made["sandbox_id"], port=80))
        assert not harness.machine_of(made["sandbox_id"]).paused
    await unplugging
    assert harness.machine_of(made["sandbox_id"]).paused


@with_harness
async def test_a_wake_under_way_gets_no_network(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    going_on = harness.host.hold("start")
    waking = asyncio.create_task(act(harness, made, "resume"))
    await harness.until(lambda: "start" in {call.method for call in harness.host.calls[1:]})
    unplugging = asyncio.create_task(harness.system.unplugs.unplug(sandbox))
    await harness.until(lambda: link_of(harness).was_cut)
    going_on.set()
    await asyncio.gather(waking, unplugging)
    assert (sandbox.row.state, sandbox.row.unplugged is not None) == ("paused", True)


@with_harness
async def test_a_rule_of_its_policy_unplugs_it(harness: Harness) -> None:
    made = await harness.create()
    link = link_of(harness)
    assert link.guest.unplug is not None
    link.guest.unplug("rule 1 unplugs at evil.example:443")
    assert link.was_cut  # at once
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.unplugged is not None)
    assert sandbox.row.unplugged is not None
    assert sandbox.row.unplugged.reason == "rule 1 unplugs at evil.example:443"


@with_harness
async def test_all_are_unplugged_and_one_that_fails_does_not_keep_the_others(harness: Harness) -> None:
    first, second = await harness.create(), await harness.create()
    harness.host.fail_next("pause", EngineError("no"))
    done = (await harness.ask("POST", "/v1/unplug-all", WHY)).json
    assert len(done["unplugged"]) == 1
    assert len(done["failed"]) == 1
    assert all(link.was_cut for link in harness.links.open.values())
    for made in (first, second):
        assert (await info(harness, made))["unplugged"]["reason"] == WHY["reason"]


@with_harness
async def test_the_first_reason_counts_and_replug_of_what_is_plugged_does_nothing(harness: Harness) -> None:
    made = await harness.create()
    assert (await act(harness, made, "replug")).json["state"] == "running"
    await act(harness, made, "unplug", WHY)
    assert (await act(harness, made, "unplug", {"reason": "other"})).json["unplugged"]["reason"] == WHY[
        "reason"
    ]


@with_harness
async def test_it_can_be_killed_and_one_that_was_is_not_found(harness: Harness) -> None:
    made = await harness.create()
    await act(harness, made, "unplug")
    assert (await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")).status == 204
    assert (await act(harness, made, "unplug")).status == 404
    assert harness.links.open == {}
