"""Sleepers wake at the time that a program inside has left: once, bounded, and through the door of all wakes."""

from __future__ import annotations

import asyncio
import socket
from typing import cast

import pytest

from atoll.errors import AgentError
from atoll.guest import last_words_from
from atoll.supervisor.machines.agent_client import Agents, Dials
from atoll.supervisor.monitors.wake_timers import PAUSES_S
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.wake_times import LEAST_S, MOST_S, wake_time
from atoll.types import Lifecycle
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


async def sleeper(harness: Harness, in_s: float = 100, **spec: object) -> Sandbox:
    """A new sandbox that is suspended until then."""
    made = await harness.create(**spec)
    harness.agents.wake_at = harness.now_s + in_s
    await harness.asleep(made)
    return harness.system.inventory.sandbox(made["sandbox_id"])


async def until_awake(harness: Harness, sandbox: Sandbox) -> None:
    await harness.until(lambda: sandbox.row.state == "running")
    async with sandbox.lock:
        pass


async def info_of(harness: Harness, sandbox: Sandbox) -> dict[str, object]:
    answer = (await harness.ask("GET", f"/v1/sandboxes/{sandbox.sandbox_id}")).json
    assert isinstance(answer, dict)
    return answer


def test_what_a_guest_asks_for_is_bounded() -> None:
    how = Lifecycle()
    assert wake_time(how, 1100.0, 1000.0) == 1100.0
    assert wake_time(how, 1000.5, 1000.0) == 1000.0 + LEAST_S
    assert wake_time(how, 1000.0, 1000.0) is None
    assert wake_time(how, 0.0, 1000.0) is None
    assert wake_time(how, 1001.0 + MOST_S, 1000.0) is None
    assert wake_time(Lifecycle(auto_resume=False), 1100.0, 1000.0) is None
    for lie in (b'{"wake_at": -1}', b'{"wake_at": NaN}', b'{"wake_at": "soon"}', b"[]", b""):
        with pytest.raises(AgentError):
            last_words_from(lie)


@with_harness
async def test_it_wakes_then_and_only_once(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    wakes_at = harness.agents.wake_at
    assert (await info_of(harness, sandbox))["wakes_at"] == wakes_at
    harness.agents.wake_at = 0.0
    harness.now_s += 90
    await asyncio.sleep(0.6)
    assert sandbox.row.state == "suspended"
    harness.now_s += 10
    await until_awake(harness, sandbox)
    assert (await info_of(harness, sandbox))["wakes_at"] is None
    assert "the time has come" in harness.system.paths.console(sandbox.sandbox_id).read_text()
    await harness.asleep({"sandbox_id": sandbox.sandbox_id})
    assert sandbox.row.wakes_at is None


@with_harness
async def test_a_use_before_then_ends_it_and_a_fork_has_none(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    (fork,) = (await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/fork", {"count": 1})).json
    assert fork["wakes_at"] is None
    assert sandbox.row.wakes_at is not None
    await harness.system.wakes.use(sandbox)
    assert sandbox.row.wakes_at is None


@with_harness
async def test_it_outlives_the_supervisor_and_what_was_missed_happens_at_the_start(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    await harness.crash()
    harness.now_s += 1000
    await harness.start()
    await until_awake(harness, harness.system.inventory.sandbox(sandbox.sandbox_id))


@with_harness
async def test_a_sleep_without_memory_has_a_time_too(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    harness.agents.wake_at = harness.now_s + 100
    await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/suspend", {"memory": False})
    assert (sandbox.row.has_memory, sandbox.row.wakes_at) == (False, harness.agents.wake_at)
    harness.now_s += 100
    await until_awake(harness, sandbox)


@with_harness
async def test_an_idle_one_that_is_paused_keeps_its_time_until_it_is_suspended(harness: Harness) -> None:
    made = await harness.create(lifecycle={"idle_pause_s": 1, "idle_suspend_s": 1000})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    wakes_at = harness.agents.wake_at = harness.now_s + 5000
    for state, passed_s in (("paused", 1), ("suspended", 1000)):

        def slept(state: str = state, passed_s: float = passed_s) -> bool:
            harness.boot_s += passed_s
            return sandbox.row.state == state

        await harness.until(slept)
        assert sandbox.row.wakes_at == wakes_at
    assert harness.agents.farewells == 0  # it was frozen already
    harness.now_s += 5000
    await until_awake(harness, sandbox)


@with_harness
async def test_an_agent_that_does_not_answer_stops_no_suspend(harness: Harness) -> None:
    harness.agents.is_mute = True
    sandbox = await sleeper(harness)
    assert (sandbox.row.state, sandbox.row.wakes_at) == ("suspended", None)
    assert "does not answer" in harness.system.paths.console(sandbox.sandbox_id).read_text()


@with_harness
async def test_a_wake_that_fails_is_tried_again_after_a_while(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    begun = len(harness.host.calls)
    harness.host.fail_next("start")
    harness.now_s += 100
    await harness.until(lambda: len(harness.host.calls) > begun and not harness.system.tasks.busy)
    assert sandbox.row.state == "suspended"
    assert harness.system.wake_timers.waiting
    harness.boot_s += PAUSES_S[0]
    await until_awake(harness, sandbox)


@with_harness
async def test_a_drained_home_wakes_it_after_the_drain(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    assert (await harness.ask("POST", "/v1/drain")).status == 200
    harness.now_s += 100
    await asyncio.sleep(0.6)
    assert sandbox.row.state == "suspended"
    assert (await harness.ask("DELETE", "/v1/drain")).status == 200
    harness.boot_s += 3600
    await until_awake(harness, sandbox)


@with_harness
async def test_an_unplugged_one_sleeps_until_it_is_replugged(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    one = f"/v1/sandboxes/{sandbox.sandbox_id}"
    assert (await harness.ask("POST", f"{one}/unplug")).status == 200
    harness.now_s += 100
    await asyncio.sleep(0.6)
    assert sandbox.row.state == "suspended"
    assert not harness.system.wake_timers.waiting
    assert (await harness.ask("POST", f"{one}/replug")).status == 200
    await until_awake(harness, sandbox)


@with_harness_of(Settings(pool_size=0, idle_exit_s=0.01))
async def test_the_supervisor_stays_for_one_that_has_a_time(harness: Harness) -> None:
    sandbox = await sleeper(harness)
    await harness.until(lambda: not harness.system.tasks.busy)
    harness.system.keeper._asked_at_s -= 60
    assert not harness.system.keeper.may_leave()
    harness.system.keeper._asked_at_s -= 60
    await harness.system.kills.kill(sandbox)
    await harness.until(lambda: not harness.system.trash.busy)
    assert harness.system.keeper.may_leave()


@with_harness
async def test_the_question_before_a_suspend_is_no_data_that_wakes(harness: Harness) -> None:
    made = await harness.create(lifecycle={"wake_on_data": True, "idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])

    def slept() -> bool:
        harness.boot_s += 1
        return sandbox.row.state == "suspended"

    await harness.until(slept)
    await harness.until(lambda: not harness.system.tasks.busy)
    assert harness.agents.farewells == 1
    assert sandbox.row.state == "suspended"


@with_harness
async def test_hooks_run_before_a_suspend_and_are_no_data_that_wakes(harness: Harness) -> None:
    harness.agents.hooks = 2
    made = await harness.create(lifecycle={"wake_on_data": True, "idle_suspend_s": 1})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    wakes_at = harness.agents.wake_at = harness.now_s + 5000

    def slept() -> bool:
        harness.boot_s += 1
        return sandbox.row.state == "suspended"

    await harness.until(slept)
    await harness.until(lambda: not harness.system.tasks.busy)
    assert (harness.agents.hooks_run, harness.agents.farewells) == (2, 2)
    assert (sandbox.row.state, sandbox.row.wakes_at) == ("suspended", wakes_at)


@with_harness
async def test_hooks_that_hang_stop_no_suspend_and_frozen_ones_run_none(harness: Harness) -> None:
    harness.agents.hooks, harness.agents.hooks_hang = 1, True
    sandbox = await sleeper(harness)
    assert (sandbox.row.state, sandbox.row.wakes_at) == ("suspended", None)
    other = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{other['sandbox_id']}/pause")
    await harness.asleep(other)
    assert harness.agents.hooks_run == 1


def test_what_is_asked_before_a_suspend_is_counted_to_the_byte() -> None:
    near, far = socket.socketpair()

    class Link:
        async def dial(self, port: int, timeout_s: float) -> socket.socket:
            near.setblocking(False)
            return near

    answer = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"wake_at": 12}'
    with far:
        far.sendall(answer)
        words, moved_bytes = asyncio.run(Agents(5.0).before_suspend(cast(Dials, Link())))
        assert words.wake_at == 12
        assert moved_bytes == len(answer) + len(far.recv(65536))
