"""Sandboxes that come back after a crash although nobody uses them."""

from __future__ import annotations

import socket
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import EngineError
from atoll.protocol import DialRequest
from atoll.supervisor.lifecycle.wake import waits_for_recovery
from atoll.supervisor.monitors.recoveries import PAUSES_S
from atoll.supervisor.state.sandbox import Sandbox
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness

AT_ONCE: dict[str, object] = {"auto_recover": True}


async def made_with(harness: Harness, on_crash: str = "reboot", **lifecycle: object) -> Sandbox:
    made = await harness.create(on_crash=on_crash, lifecycle={**AT_ONCE, **lifecycle})
    sandbox: Sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    return sandbox


async def crash(harness: Harness, sandbox: Sandbox) -> None:
    before = sandbox.row.recovered
    harness.machine_of(sandbox.sandbox_id).crash()
    # it may be recovered before anybody has looked
    await harness.until(lambda: sandbox.row.state == "crashed" or sandbox.row.recovered is not before)


async def dialled(link: FakeLink, port: int, timeout_s: float) -> socket.socket:
    return socket.socket(socket.AF_UNIX)


async def info(harness: Harness, sandbox: Sandbox) -> Any:
    return (await harness.ask("GET", f"/v1/sandboxes/{sandbox.sandbox_id}")).json


@with_harness
async def test_the_newest_snapshot_comes_back_without_a_use_and_the_info_says_how_old_it_is(
    harness: Harness,
) -> None:
    sandbox = await made_with(harness, "rollback")
    one = f"/v1/sandboxes/{sandbox.sandbox_id}"
    harness.machine_of(sandbox.sandbox_id).memory = "then"
    snapshot = (await harness.ask("POST", f"{one}/snapshots", {})).json
    harness.machine_of(sandbox.sandbox_id).memory = "now"
    harness.now_s += 240
    await crash(harness, sandbox)
    await harness.until(lambda: sandbox.row.state == "running")
    assert harness.machine_of(sandbox.sandbox_id).memory == "then"
    told = (await info(harness, sandbox))["recovered"]
    assert (told["how"], told["snapshot_id"], told["automatic"]) == (
        "snapshot",
        snapshot["snapshot_id"],
        True,
    )
    assert 240 <= told["age_s"] < 241
    log = (await harness.ask("GET", f"{one}/logs")).json["text"]
    assert "went back to its newest snapshot, 240 s old" in log
    # The next use is told of it, once. It runs a moment before that is noted.
    await harness.until(lambda: sandbox.untold is not None)
    assert sandbox.untold == sandbox.row.recovered
    answers = []
    with patch.object(FakeLink, "dial", dialled, create=True):
        for _ in range(2):
            request = DialRequest(sandbox=sandbox.sandbox_id, port=1)
            answer, connection = await harness.system.dialling.dial(request)
            connection.close()
            answers.append(answer.recovered)
    assert answers == [sandbox.row.recovered, None]


@with_harness
async def test_without_a_snapshot_the_disk_is_booted(harness: Harness) -> None:
    sandbox = await made_with(harness, "rollback")
    await crash(harness, sandbox)
    await harness.until(lambda: sandbox.row.state == "running")
    told = (await info(harness, sandbox))["recovered"]
    assert (told["how"], told["snapshot_id"], told["age_s"]) == ("disk", None, 0.0)


@pytest.mark.parametrize("state", ["paused", "stop", "lazy", "leased"])
def test_what_did_not_run_or_is_to_wait_stays_crashed(state: str) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        lifecycle: dict[str, object] = {"auto_recover": False} if state == "lazy" else {}
        if state == "leased":
            lifecycle = {"ttl_s": 60, "on_expiry": "suspend"}
        sandbox = await made_with(harness, "stop" if state == "stop" else "reboot", **lifecycle)
        if state == "paused":
            await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/pause")
        if state == "leased":
            harness.system.recoveries.close()
        await crash(harness, sandbox)
        if state == "leased":  # its lease ends before it is recovered
            assert waits_for_recovery(sandbox)
            harness.boot_s += 61
            await harness.until(lambda: sandbox.row.ends_at is None)
        harness.system.recoveries.look()
        assert not waits_for_recovery(sandbox)
        assert not harness.system.recoveries.waiting
        assert sandbox.row.state == "crashed"
        await harness.system.wakes.recover(sandbox)
        assert sandbox.row.state == "crashed"

    test()


@with_harness
async def test_a_lease_goes_on_over_a_crash(harness: Harness) -> None:
    sandbox = await made_with(harness, ttl_s=60)
    ends_s = sandbox.row.ends_boot_s
    harness.boot_s += 30
    await crash(harness, sandbox)
    await harness.until(lambda: sandbox.row.state == "running")
    assert sandbox.row.ends_boot_s == ends_s


@with_harness
async def test_a_lease_that_was_taken_off_does_not_keep_it_crashed(harness: Harness) -> None:
    sandbox = await made_with(harness, ttl_s=60)
    body = {"ttl_s": None}
    assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/lease", body)).status == 200
    await crash(harness, sandbox)
    await harness.until(lambda: sandbox.row.state == "running")


@with_harness
async def test_what_crashes_again_and_again_waits_longer_each_time_and_is_left_in_the_end(
    harness: Harness,
) -> None:
    sandbox = await made_with(harness)
    for number, pause_s in enumerate(PAUSES_S):
        await crash(harness, sandbox)
        harness.system.recoveries.look()
        if pause_s:
            harness.boot_s += pause_s - 1
            harness.system.recoveries.look()
            assert sandbox.row.state == "crashed"
            assert harness.system.recoveries.waiting
        harness.boot_s += 1
        await harness.until(lambda: sandbox.row.state == "running")
        assert sandbox.row.recovered is not None
        assert sandbox.row.recovered.times == number + 1
    await crash(harness, sandbox)
    await harness.until(lambda: "waits for its next use" in (sandbox.row.reason or ""))
    harness.boot_s += 1000
    harness.system.recoveries.look()
    assert (sandbox.row.state, harness.system.recoveries.waiting) == ("crashed", False)
    await harness.system.wakes.use(sandbox)
    # A crash much later is one of its own.
    harness.now_s += 3600
    await crash(harness, sandbox)
    await harness.until(lambda: sandbox.row.state == "running")
    assert sandbox.row.recovered is not None
    assert sandbox.row.recovered.times == 1


@with_harness
async def test_what_cannot_be_recovered_is_tried_a_few_times_and_says_why(harness: Harness) -> None:
    sandbox = await made_with(harness)
    for _ in PAUSES_S:
        harness.host.fail_next("start", EngineError("it has no engine"))
    await crash(harness, sandbox)
    for _ in range(len(PAUSES_S)):
        harness.system.recoveries.look()
        await harness.until(lambda: not harness.system.tasks.busy)
        harness.boot_s += max(PAUSES_S)
    await harness.until(lambda: "could not be recovered: it has no engine" in (sandbox.row.reason or ""))
    assert sandbox.row.state == "crashed"
    await harness.system.wakes.use(sandbox)


@with_harness
async def test_what_crashed_while_no_supervisor_ran_comes_back_with_the_next(harness: Harness) -> None:
    sandbox = await made_with(harness)
    paused = await made_with(harness)
    await harness.ask("POST", f"/v1/sandboxes/{paused.sandbox_id}/pause")
    machines = [harness.machine_of(one.sandbox_id) for one in (sandbox, paused)]
    await harness.crash()
    for machine in machines:
        machine.crash()
    await harness.start()
    harness.agents.deaf = False
    sandbox, paused = (harness.system.inventory.sandbox(one.sandbox_id) for one in (sandbox, paused))
    await harness.until(lambda: sandbox.row.state == "running")
    assert paused.row.state == "crashed"
