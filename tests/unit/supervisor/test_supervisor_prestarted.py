"""The machine that is kept ready for what is woken or forked."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from unittest.mock import patch

from atoll.errors import EngineError, UnsupportedError
from atoll.host import Mounts
from atoll.supervisor.machines import prestarted as prestarted_machines
from atoll.supervisor.settings import Settings
from atoll.testing import FakePrestarted
from atoll.types import HostMemory
from tests.unit.supervisor.harness import Harness, with_harness_of

SHORT = HostMemory(total_bytes=8 << 30, available_bytes=1 << 20, kept_free_bytes=1 << 30)


def with_prestarted_machines(test: Callable[[Harness], Any]) -> Callable[[], None]:
    """Run a test in a harness that keeps prestarted machines, on a host that is left alone."""
    run = with_harness_of(Settings(pool_size=1), prestarted_machines=True)(test)

    @functools.wraps(run)
    def alone() -> None:
        with (
            patch.object(prestarted_machines, "new_netns"),
            patch.object(prestarted_machines, "unpin"),
            patch.object(prestarted_machines, "_REFILL_PAUSE_S", 0),
            patch.object(Mounts, "share"),
        ):
            run()

    return alone


async def prestarted_of(harness: Harness, *, but: FakePrestarted | None = None) -> FakePrestarted:
    """The prestarted machine, when there is one; ``but`` is one that is not meant."""

    def others() -> list[FakePrestarted]:
        if harness.system.prestarted._making:
            return []
        return [one for one in harness.host.prestarted_machines.values() if one is not but]

    await harness.until(others)
    (prestarted,) = others()
    return prestarted


def steps(harness: Harness, machine_id: str) -> list[str]:
    """What a machine was asked to do. It may have been measured at any time."""
    return [each for each in harness.host.methods(machine_id) if each != "stats"]


@with_prestarted_machines
async def test_what_fell_asleep_is_woken_in_a_prestarted_machine_and_the_next_one_is_made(
    harness: Harness,
) -> None:
    made = await harness.create()
    assert not harness.host.prestarted_machines
    await harness.asleep(made)
    prestarted = await prestarted_of(harness)
    assert (prestarted.plan.state_dir / "console.log").readlink().name == "null"
    sandbox_id = made["sandbox_id"]
    assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox_id}/resume")).json["state"] == "running"
    machine = harness.machine_of(sandbox_id)
    assert machine.machine_id == prestarted.machine_id
    assert steps(harness, prestarted.machine_id) == ["prestart", "restore", "start"]
    console = prestarted.plan.state_dir / "console.log"
    assert console.readlink() == harness.home.sandboxes / sandbox_id / "console.log"
    assert (await prestarted_of(harness)).machine_id != prestarted.machine_id


@with_prestarted_machines
async def test_a_fork_uses_it_too_and_so_does_a_rollback(harness: Harness) -> None:
    made = await harness.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    (first,) = (await harness.ask("POST", f"{path}/fork", {"count": 1})).json
    prestarted = await prestarted_of(harness)
    (second,) = (await harness.ask("POST", f"{path}/fork", {"count": 1})).json
    assert harness.machine_of(first["sandbox_id"]).machine_id != prestarted.machine_id
    assert harness.machine_of(second["sandbox_id"]).machine_id == prestarted.machine_id
    snapshot = (await harness.ask("POST", f"{path}/snapshots", {})).json
    prestarted = await prestarted_of(harness)
    answer = await harness.ask("POST", f"{path}/rollback", {"snapshot": snapshot["snapshot_id"]})
    assert answer.status == 200, answer.body
    assert harness.machine_of(made["sandbox_id"]).machine_id == prestarted.machine_id


@with_prestarted_machines
async def test_it_is_of_the_shape_of_what_is_used_twice_in_a_row(harness: Harness) -> None:
    small = await harness.create(limits={"memory_mib": 256})
    large = await harness.create(limits={"memory_mib": 512, "vcpus": 1})
    await harness.asleep(small)
    first = await prestarted_of(harness)
    assert first.plan.limits.memory_mib == 256
    await harness.asleep(large)
    assert await prestarted_of(harness) is first
    await harness.ask("POST", f"/v1/sandboxes/{large['sandbox_id']}/resume")
    second = await prestarted_of(harness, but=first)
    assert (second.plan.limits.memory_mib, second.plan.limits.vcpus) == (512, 1)
    assert "kill_prestarted" in harness.host.methods(first.machine_id)
    assert not first.plan.state_dir.exists()
    await harness.ask("POST", f"/v1/sandboxes/{small['sandbox_id']}/resume")
    assert harness.machine_of(small["sandbox_id"]).machine_id != second.machine_id


@with_prestarted_machines
async def test_what_has_a_volume_does_without(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data"})
    made = await harness.create(volumes={"/data": "data"})
    await harness.asleep(made)
    other = await harness.create()
    await harness.asleep(other)
    prestarted = await prestarted_of(harness)
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")
    assert harness.machine_of(made["sandbox_id"]).machine_id != prestarted.machine_id


@with_prestarted_machines
async def test_one_that_is_of_no_use_costs_only_time(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    prestarted = await prestarted_of(harness)
    prestarted.lost = True
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
    assert steps(harness, prestarted.machine_id) == ["prestart", "restore", "start"]
    link = cast(Any, harness.system.inventory.sandbox(made["sandbox_id"]).running).link
    assert link.calls[-3:-1] == ["open_uplink", "prepare"]


@with_prestarted_machines
async def test_a_network_that_cannot_be_taken_is_left_to_the_engine(harness: Harness) -> None:
    made = await harness.create()
    (link,) = harness.links.open.values()
    link.is_held = True
    await harness.asleep(made)
    prestarted = await prestarted_of(harness)
    with patch.object(link, "open_uplink", side_effect=OSError("not here")):
        assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
    assert steps(harness, prestarted.machine_id) == ["prestart", "kill_prestarted", "start"]


@with_prestarted_machines
async def test_one_that_dies_while_it_is_used_costs_only_time_too(harness: Harness) -> None:
    made = await harness.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    first = await prestarted_of(harness)
    harness.host.fail_next("restore")
    assert (await harness.ask("POST", f"{path}/resume")).status == 200
    assert steps(harness, first.machine_id) == ["prestart", "restore", "kill_prestarted"]
    second = await prestarted_of(harness)
    harness.host.fail_next("restore")
    (copy,) = (await harness.ask("POST", f"{path}/fork", {"count": 1})).json
    assert harness.machine_of(copy["sandbox_id"]).machine_id != second.machine_id
    # A warm machine that is being made has its link before it runs.
    await harness.until(lambda: len(harness.links.open) == len(harness.host.machines))


@with_prestarted_machines
async def test_one_whose_sandbox_cannot_go_on_ends(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    prestarted = await prestarted_of(harness)
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    with patch.object(harness.layers, "mount", side_effect=EngineError("no disk for you")):
        assert (await harness.ask("POST", f"{path}/resume")).status == 500
    assert steps(harness, prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert not prestarted.plan.state_dir.exists()
    assert (await harness.ask("POST", f"{path}/resume")).status == 200


@with_prestarted_machines
async def test_none_is_made_or_kept_while_memory_is_short(harness: Harness) -> None:
    own = harness.system.prestarted
    made = await harness.create()
    with patch.object(own, "memory", lambda: SHORT):
        await harness.asleep(made)
        await harness.until(lambda: not own._making)
        assert not harness.host.prestarted_machines
    own.expect(
        harness.system._steps.sandbox_planner.of(harness.system.inventory.sandbox(made["sandbox_id"]).row)
    )
    prestarted = await prestarted_of(harness)
    with patch.object(harness.system.pool, "memory", lambda: SHORT):
        await harness.system.pool.look_after_memory()
    assert steps(harness, prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert own.ids() == set()


@with_prestarted_machines
async def test_where_none_can_be_made_it_is_tried_again_after_a_while(harness: Harness) -> None:
    own = harness.system.prestarted
    made = await harness.create()

    async def waken(times: int) -> int:
        for _ in range(times):
            await harness.asleep(made)
            await harness.until(lambda: not own._making)
            assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
            await harness.until(lambda: not own._making)
        return [call.method for call in harness.host.calls].count("prestart")

    harness.host.fail_next("prestart")
    assert await waken(2) == 1
    assert own.ids() == set()
    harness.host.fail_next("prestart")
    first_rest_s, own._rests_until_s = own._rests_until_s, 0
    assert await waken(2) == 2
    assert own._rests_until_s > first_rest_s + 5
    own._rests_until_s = 0
    assert await waken(1) > 2
    harness.host.fail_next("prestart", UnsupportedError("not here"))
    await waken(1)
    tried = await waken(1)
    own._rests_until_s = 0
    assert await waken(2) == tried
    assert own.ids() == set()


@with_prestarted_machines
async def test_what_does_not_end_keeps_its_disk(harness: Harness) -> None:
    made = await harness.create()
    await harness.asleep(made)
    prestarted = await prestarted_of(harness)
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("kill_prestarted", EngineError("it does not end"))
    harness.host.fail_next("kill_prestarted", EngineError("it does not end"))
    with patch.object(harness.layers, "mount", side_effect=EngineError("no disk for you")):
        assert (await harness.ask("POST", f"{path}/resume")).status == 500
    # Two machines that write to one disk would destroy it.
    assert (await harness.ask("POST", f"{path}/resume")).status == 500
    assert (await harness.ask("POST", f"{path}/resume")).json["state"] == "running"
    assert steps(harness, prestarted.machine_id) == ["prestart", *["kill_prestarted"] * 3]


@with_prestarted_machines
async def test_one_that_is_made_when_the_supervisor_leaves_ends(harness: Harness) -> None:
    unpinning, go_on = threading.Event(), threading.Event()

    def unpin(_: Path) -> None:
        unpinning.set()
        go_on.wait(60)

    with patch.object(prestarted_machines, "unpin", unpin):
        await harness.asleep(await harness.create())
        await asyncio.to_thread(unpinning.wait, 60)
        (prestarted,) = harness.host.prestarted_machines.values()
        leaving = asyncio.create_task(harness.system.tasks.finish(0))
        await asyncio.sleep(0.05)
        go_on.set()
        await leaving
        await harness.until(lambda: not harness.system.prestarted._making)
    assert steps(harness, prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert harness.system.prestarted.ids() == set()


def test_it_ends_with_the_supervisor() -> None:
    host = []

    @with_prestarted_machines
    async def test(harness: Harness) -> None:
        await harness.asleep(await harness.create())
        host.append((harness.host, await prestarted_of(harness)))

    test()
    ((left, prestarted),) = host
    assert left.prestarted_machines == {}
    assert left.methods(prestarted.machine_id) == ["prestart", "kill_prestarted"]


@with_prestarted_machines
async def test_what_is_left_of_a_prestarted_machine_that_does_not_end_is_for_gc(harness: Harness) -> None:
    await harness.asleep(await harness.create())
    prestarted, prestarted_machines = (
        await prestarted_of(harness),
        harness.system.prestarted,
    )
    assert prestarted.machine_id in prestarted_machines.ids()
    with patch.object(FakePrestarted, "kill", side_effect=EngineError("it is stuck in the kernel")):
        await prestarted_machines.drain()
    assert prestarted.machine_id not in prestarted_machines.ids()


@with_prestarted_machines
async def test_a_sandbox_sleeps_whether_or_not_a_prestarted_can_be_thought_of(harness: Harness) -> None:
    made = await harness.create()
    with patch.object(harness.system.images, "facts", side_effect=OSError(24, "Too many open files")):
        await harness.asleep(made)
        await harness.until(lambda: not harness.host.machines)
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).json[
        "state"
    ] == "running"
