"""Guests that answer nothing: they are named, given up in time, and hold up no others."""

from __future__ import annotations

import asyncio
import errno
import socket
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import DeadlineError, UnresponsiveError
from atoll.protocol import DialRequest
from atoll.supervisor.monitors.unresponsive import GIVEN_UP_S
from tests.unit.supervisor.fakes import FakeLink
from tests.unit.supervisor.harness import Harness, with_harness

SILENCE = UnresponsiveError("the guest's kernel does not answer")


async def info(harness: Harness, made: Any) -> Any:
    return (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json


async def named(harness: Harness, made: Any) -> None:
    """Have a guest answer nothing, and wait until that is known."""
    harness.agents.is_silent = True
    await harness.system.unresponsive.look()
    assert (await info(harness, made))["unresponsive_since"] is not None


@with_harness
async def test_a_guest_that_does_not_answer_is_named_until_it_answers(harness: Harness) -> None:
    made = await harness.create()
    await harness.system.unresponsive.look()
    assert (await info(harness, made)).get("unresponsive_since") is None
    await named(harness, made)
    (listed,) = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    assert listed["state"] == "running"
    assert listed["unresponsive_since"] is not None
    harness.agents.is_silent = False
    await harness.system.unresponsive.look()
    assert (await info(harness, made)).get("unresponsive_since") is None
    log = (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}/logs")).json["text"]
    assert log.index("its guest does not answer") < log.index("its guest answers again")


@with_harness
async def test_a_guest_that_sleeps_is_not_asked(harness: Harness) -> None:
    made = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    harness.agents.is_silent = True
    await harness.system.unresponsive.look()
    assert (await info(harness, made)).get("unresponsive_since") is None


@with_harness
async def test_a_host_that_is_short_of_descriptors_says_nothing_about_a_guest(harness: Harness) -> None:
    made = await harness.create()
    harness.agents.asking_fails = OSError(errno.EMFILE, "too many open files")
    await harness.system.unresponsive.look()
    assert (await info(harness, made)).get("unresponsive_since") is None


@pytest.mark.parametrize(
    ("lifecycle", "on_crash", "ends"),
    [
        ({"auto_recover": True}, "reboot", True),
        ({"auto_recover": True}, "stop", False),
        ({}, "reboot", False),
    ],
)
def test_only_one_that_is_to_be_recovered_counts_as_crashed_after_a_minute(
    lifecycle: dict[str, object], on_crash: str, ends: bool
) -> None:
    @with_harness
    async def test(harness: Harness) -> None:
        made = await harness.create(lifecycle=lifecycle, on_crash=on_crash)
        machine = harness.machine_of(made["sandbox_id"])
        await named(harness, made)
        assert machine.alive
        harness.boot_s += GIVEN_UP_S
        await harness.system.unresponsive.look()
        assert machine.alive is not ends
        if ends:
            await harness.until(lambda: harness.system.inventory.sandbox(made["sandbox_id"]).row.recovered)
            assert "did not answer for 60 s" in (await info(harness, made))["recovered"]["reason"]

    test()


@with_harness
async def test_a_use_says_at_once_that_a_guest_hangs_and_what_to_do(harness: Harness) -> None:
    made = await harness.create()
    waits: list[float] = []

    async def dial(link: FakeLink, port: int, timeout_s: float) -> socket.socket:
        waits.append(timeout_s)
        raise TimeoutError("no answer")

    async def use(within_s: float | None = None) -> None:
        request = DialRequest(sandbox=made["sandbox_id"], port=80, within_s=within_s)
        await harness.system.dialling.dial(request)

    with patch.object(FakeLink, "dial", dial, create=True):
        with pytest.raises(DeadlineError) as raised:
            await use(within_s=3.0)
        assert type(raised.value) is DeadlineError
        await named(harness, made)
        with pytest.raises(UnresponsiveError, match="suspend --no-memory"):
            await use()
    assert waits == [3.0, 1.0]


@with_harness
async def test_one_that_hangs_is_ended_where_only_its_disk_is_to_stay(harness: Harness) -> None:
    made = await harness.create()
    machine = harness.machine_of(made["sandbox_id"])
    await named(harness, made)
    harness.host.fail_next("pause", SILENCE)
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("POST", f"{one}/suspend", {"memory": False})).status == 200
    assert harness.agents.flushed == 0
    told = await info(harness, made)
    assert (told["state"], told["has_memory"]) == ("suspended", False)
    await harness.until(lambda: not machine.alive)


@with_harness
async def test_one_that_hangs_holds_up_no_other_when_all_are_suspended(harness: Harness) -> None:
    hangs, healthy = await harness.create(), await harness.create()
    release = harness.host.hold("pause")
    inventory = harness.system.inventory
    machine_id = harness.machine_of(hangs["sandbox_id"]).machine_id
    all_of_them = asyncio.create_task(harness.ask("POST", "/suspend-all"))
    await harness.until(lambda: "pause" in harness.host.methods(machine_id))
    other = harness.machine_of(healthy["sandbox_id"]).machine_id
    await harness.until(lambda: "pause" in harness.host.methods(other))
    harness.host.fail_next("pause", SILENCE)
    release.set()
    answer = (await all_of_them).json
    assert len(answer["suspended"]) == len(answer["failed"]) == 1
    states = {inventory.sandbox(one["sandbox_id"]).row.state for one in (hangs, healthy)}
    assert "suspended" in states
