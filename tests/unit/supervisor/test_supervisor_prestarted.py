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
from atoll.host import Memory, Mounts
from atoll.supervisor.machines import prestarted as prestarted_machines
from atoll.supervisor.settings import Settings
from atoll.testing import FakePrestarted
from tests.unit.supervisor.world import World, in_world_of


def with_prestarted_machines(test: Callable[[World], Any]) -> Callable[[], None]:
    """Run a test in a world that keeps prestarted machines, on a host that is left alone."""
    run = in_world_of(Settings(pool_size=1), prestarted_machines=True)(test)

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


async def prestarted_of(world: World, *, but: FakePrestarted | None = None) -> FakePrestarted:
    """The prestarted machine, when there is one; ``but`` is one that is not meant."""

    def others() -> list[FakePrestarted]:
        if world.system.prestarted._making:
            return []
        return [one for one in world.host.prestarted_machines.values() if one is not but]

    await world.until(others)
    (prestarted,) = others()
    return prestarted


@with_prestarted_machines
async def test_what_fell_asleep_is_woken_in_a_prestarted_machine_and_the_next_one_is_made(
    world: World,
) -> None:
    made = await world.create()
    assert not world.host.prestarted_machines
    await world.asleep(made)
    prestarted = await prestarted_of(world)
    assert (prestarted.plan.state_dir / "console.log").readlink().name == "null"
    sandbox_id = made["sandbox_id"]
    assert (await world.ask("POST", f"/v1/sandboxes/{sandbox_id}/resume")).json["state"] == "running"
    machine = world.machine_of(sandbox_id)
    assert machine.machine_id == prestarted.machine_id
    assert world.host.methods(prestarted.machine_id) == ["prestart", "restore", "start"]
    console = prestarted.plan.state_dir / "console.log"
    assert console.readlink() == world.home.sandboxes / sandbox_id / "console.log"
    assert (await prestarted_of(world)).machine_id != prestarted.machine_id


@with_prestarted_machines
async def test_a_fork_uses_it_too_and_so_does_a_rollback(world: World) -> None:
    made = await world.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    (first,) = (await world.ask("POST", f"{path}/fork", {"count": 1})).json
    prestarted = await prestarted_of(world)
    (second,) = (await world.ask("POST", f"{path}/fork", {"count": 1})).json
    assert world.machine_of(first["sandbox_id"]).machine_id != prestarted.machine_id
    assert world.machine_of(second["sandbox_id"]).machine_id == prestarted.machine_id
    snapshot = (await world.ask("POST", f"{path}/snapshots", {})).json
    prestarted = await prestarted_of(world)
    answer = await world.ask("POST", f"{path}/rollback", {"snapshot": snapshot["snapshot_id"]})
    assert answer.status == 200, answer.body
    assert world.machine_of(made["sandbox_id"]).machine_id == prestarted.machine_id


@with_prestarted_machines
async def test_it_is_of_the_shape_of_what_is_used_twice_in_a_row(world: World) -> None:
    small = await world.create(limits={"memory_mib": 256})
    large = await world.create(limits={"memory_mib": 512, "vcpus": 1})
    await world.asleep(small)
    first = await prestarted_of(world)
    assert first.plan.limits.memory_mib == 256
    await world.asleep(large)
    assert await prestarted_of(world) is first
    await world.ask("POST", f"/v1/sandboxes/{large['sandbox_id']}/resume")
    second = await prestarted_of(world, but=first)
    assert (second.plan.limits.memory_mib, second.plan.limits.vcpus) == (512, 1)
    assert "kill_prestarted" in world.host.methods(first.machine_id)
    assert not first.plan.state_dir.exists()
    await world.ask("POST", f"/v1/sandboxes/{small['sandbox_id']}/resume")
    assert world.machine_of(small["sandbox_id"]).machine_id != second.machine_id


@with_prestarted_machines
async def test_what_has_a_volume_does_without(world: World) -> None:
    await world.ask("POST", "/v1/volumes", {"name": "data"})
    made = await world.create(volumes={"/data": "data"})
    await world.asleep(made)
    other = await world.create()
    await world.asleep(other)
    prestarted = await prestarted_of(world)
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")
    assert world.machine_of(made["sandbox_id"]).machine_id != prestarted.machine_id


@with_prestarted_machines
async def test_one_that_is_of_no_use_costs_only_time(world: World) -> None:
    made = await world.create()
    await world.asleep(made)
    prestarted = await prestarted_of(world)
    prestarted.lost = True
    assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
    assert world.host.methods(prestarted.machine_id) == ["prestart", "restore", "start"]
    link = cast(Any, world.system.registry.sandbox(made["sandbox_id"]).running).link
    assert link.calls[-3:-1] == ["open_uplink", "prepare"]


@with_prestarted_machines
async def test_a_network_that_cannot_be_taken_is_left_to_the_engine(world: World) -> None:
    made = await world.create()
    await world.asleep(made)
    prestarted = await prestarted_of(world)
    link = world.system.registry.sandbox(made["sandbox_id"]).link
    with patch.object(link, "open_uplink", side_effect=OSError("not here")):
        assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
    assert world.host.methods(prestarted.machine_id) == ["prestart", "kill_prestarted", "start"]


@with_prestarted_machines
async def test_one_that_dies_while_it_is_used_costs_only_time_too(world: World) -> None:
    made = await world.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.asleep(made)
    first = await prestarted_of(world)
    world.host.fail_next("restore")
    assert (await world.ask("POST", f"{path}/resume")).status == 200
    assert world.host.methods(first.machine_id) == ["prestart", "restore", "kill_prestarted"]
    second = await prestarted_of(world)
    world.host.fail_next("restore")
    (copy,) = (await world.ask("POST", f"{path}/fork", {"count": 1})).json
    assert world.machine_of(copy["sandbox_id"]).machine_id != second.machine_id
    # A warm machine that is being made has its link before it runs.
    await world.until(lambda: len(world.links.open) == len(world.host.machines))


@with_prestarted_machines
async def test_one_whose_sandbox_cannot_go_on_ends(world: World) -> None:
    made = await world.create()
    await world.asleep(made)
    prestarted = await prestarted_of(world)
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    with patch.object(world.layers, "mount", side_effect=EngineError("no disk for you")):
        assert (await world.ask("POST", f"{path}/resume")).status == 500
    assert world.host.methods(prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert not prestarted.plan.state_dir.exists()
    assert (await world.ask("POST", f"{path}/resume")).status == 200


@with_prestarted_machines
async def test_none_is_made_or_kept_while_memory_is_short(world: World) -> None:
    own = world.system.prestarted
    made = await world.create()
    with patch.object(own, "_memory", lambda: Memory(8 << 30, 1 << 20)):
        await world.asleep(made)
        await world.until(lambda: not own._making)
        assert not world.host.prestarted_machines
    own.expect(world.system._steps.plans.of(world.system.registry.sandbox(made["sandbox_id"]).row))
    prestarted = await prestarted_of(world)
    with patch.object(world.system.pool, "_memory", lambda: Memory(8 << 30, 1 << 20)):
        await world.system.pool.look_after_memory()
    assert world.host.methods(prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert own.ids() == set()


@with_prestarted_machines
async def test_where_none_can_be_made_it_is_tried_again_after_a_while(world: World) -> None:
    own = world.system.prestarted
    made = await world.create()

    async def waken(times: int) -> int:
        for _ in range(times):
            await world.asleep(made)
            await world.until(lambda: not own._making)
            assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).status == 200
            await world.until(lambda: not own._making)
        return [call.method for call in world.host.calls].count("prestart")

    world.host.fail_next("prestart")
    assert await waken(2) == 1
    assert own.ids() == set()
    world.host.fail_next("prestart")
    first_rest_s, own._rests_until_s = own._rests_until_s, 0
    assert await waken(2) == 2
    assert own._rests_until_s > first_rest_s + 5
    own._rests_until_s = 0
    assert await waken(1) > 2
    world.host.fail_next("prestart", UnsupportedError("not here"))
    await waken(1)
    tried = await waken(1)
    own._rests_until_s = 0
    assert await waken(2) == tried
    assert own.ids() == set()


@with_prestarted_machines
async def test_what_does_not_end_keeps_its_disk(world: World) -> None:
    made = await world.create()
    await world.asleep(made)
    prestarted = await prestarted_of(world)
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("kill_prestarted", EngineError("it does not end"))
    world.host.fail_next("kill_prestarted", EngineError("it does not end"))
    with patch.object(world.layers, "mount", side_effect=EngineError("no disk for you")):
        assert (await world.ask("POST", f"{path}/resume")).status == 500
    # Two machines that write to one disk would destroy it.
    assert (await world.ask("POST", f"{path}/resume")).status == 500
    assert (await world.ask("POST", f"{path}/resume")).json["state"] == "running"
    assert world.host.methods(prestarted.machine_id) == ["prestart", *["kill_prestarted"] * 3]


@with_prestarted_machines
async def test_one_that_is_made_when_the_supervisor_leaves_ends(world: World) -> None:
    unpinning, go_on = threading.Event(), threading.Event()

    def unpin(_: Path) -> None:
        unpinning.set()
        go_on.wait(60)

    with patch.object(prestarted_machines, "unpin", unpin):
        await world.asleep(await world.create())
        await asyncio.to_thread(unpinning.wait, 60)
        (prestarted,) = world.host.prestarted_machines.values()
        leaving = asyncio.create_task(world.system.tasks.finish(0))
        await asyncio.sleep(0.05)
        go_on.set()
        await leaving
        await world.until(lambda: not world.system.prestarted._making)
    assert world.host.methods(prestarted.machine_id) == ["prestart", "kill_prestarted"]
    assert world.system.prestarted.ids() == set()


def test_it_ends_with_the_supervisor() -> None:
    host = []

    @with_prestarted_machines
    async def test(world: World) -> None:
        await world.asleep(await world.create())
        host.append((world.host, await prestarted_of(world)))

    test()
    ((left, prestarted),) = host
    assert left.prestarted_machines == {}
    assert left.methods(prestarted.machine_id) == ["prestart", "kill_prestarted"]


@with_prestarted_machines
async def test_what_is_left_of_a_prestarted_machine_that_does_not_end_is_for_gc(world: World) -> None:
    await world.asleep(await world.create())
    prestarted, prestarted_machines = (
        await prestarted_of(world),
        world.system.prestarted,
    )
    assert prestarted.machine_id in prestarted_machines.ids()
    with patch.object(FakePrestarted, "kill", side_effect=EngineError("it is stuck in the kernel")):
        await prestarted_machines.drain()
    assert prestarted.machine_id not in prestarted_machines.ids()


@with_prestarted_machines
async def test_a_sandbox_sleeps_whether_or_not_a_prestarted_can_be_thought_of(world: World) -> None:
    made = await world.create()
    with patch.object(world.system.images, "facts", side_effect=OSError(24, "Too many open files")):
        await world.asleep(made)
        await world.until(lambda: not world.host.machines)
    assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/resume")).json["state"] == "running"
