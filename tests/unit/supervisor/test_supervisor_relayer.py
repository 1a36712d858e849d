"""A running sandbox stands beside its disk while the layer below it is frozen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.errors import EngineError
from atoll.supervisor.settings import Settings
from tests.unit.supervisor.world import World, in_world_of

in_complete_world = in_world_of(Settings(pool_size=0), complete=True)


async def _made(world: World) -> tuple[str, str]:
    """A sandbox with so much on its disk that a copy of it freezes the layer."""
    sandbox_id = (await world.create())["sandbox_id"]
    world.machine_of(sandbox_id).memory = "kept"
    world.layers.has_much = True
    return sandbox_id, f"/v1/sandboxes/{sandbox_id}"


async def _whole(world: World, sandbox_id: str, layers: int) -> None:
    """See that a sandbox runs with its memory, on so many frozen layers, and that nothing else is left of it."""
    sandbox = world.system.registry.sandbox(sandbox_id)
    machine = world.machine_of(sandbox_id)
    assert (sandbox.row.state, machine.memory, machine.paused, machine.detached) == (
        "running",
        "kept",
        False,
        False,
    )
    assert machine.machine_id == sandbox.row.machine_id
    assert len(sandbox.row.stack) == layers
    assert sandbox.running is not None
    assert not sandbox.running.leaving
    directory = world.home.sandboxes / sandbox_id
    mine = {"d1", "console.log", "row.json"}
    await world.until(lambda: {entry.name for entry in directory.iterdir()} <= mine)


@in_complete_world
async def test_a_sandbox_whose_layer_is_frozen_goes_on_as_the_same_machine(world: World) -> None:
    sandbox_id, one = await _made(world)
    machine = world.machine_of(sandbox_id)
    generation = world.system.registry.sandbox(sandbox_id).row.generation
    (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
    assert world.machine_of(sandbox_id) is machine
    assert world.machine_of(copy["sandbox_id"]).memory == "kept"
    assert world.system.registry.sandbox(sandbox_id).row.generation == generation
    calls = world.host.methods(machine.machine_id)
    assert calls[calls.index("pause") :][:5] == [
        "pause",
        "checkpoint",
        "detach_files",
        "attach_files",
        "resume",
    ]
    await _whole(world, sandbox_id, layers=1)


@pytest.mark.parametrize("error", [EngineError("lost"), KeyError("what nobody expects")])
@pytest.mark.parametrize("failing", ["detach_files", "attach_files"])
def test_a_machine_that_does_not_find_back_is_replaced_by_another_with_its_memory(
    failing: str, error: Exception
) -> None:
    @in_complete_world
    async def lived(world: World) -> None:
        sandbox_id, one = await _made(world)
        machine = world.machine_of(sandbox_id)
        world.host.fail_next(failing, error)
        assert (await world.ask("POST", f"{one}/fork", {})).status == 200
        assert world.machine_of(sandbox_id) is not machine
        assert not machine.alive
        await _whole(world, sandbox_id, layers=1)

    lived()


@in_complete_world
async def test_a_machine_that_dies_beside_its_disk_is_replaced_by_another_with_its_memory(
    world: World,
) -> None:
    sandbox_id, one = await _made(world)
    machine = world.machine_of(sandbox_id)

    async def note(method: str, machine_id: str, before: Any = world.host.note) -> None:
        if method == "attach_files":
            machine.crash()
            raise EngineError("nobody answers")
        await before(method, machine_id)

    world.host.note = note  # type: ignore[method-assign]
    assert (await world.ask("POST", f"{one}/fork", {})).status == 200
    assert world.machine_of(sandbox_id) is not machine
    await _whole(world, sandbox_id, layers=1)


@in_complete_world
async def test_a_layer_that_does_not_freeze_leaves_the_sandbox_as_it_was(world: World) -> None:
    sandbox_id, one = await _made(world)
    machine = world.machine_of(sandbox_id)
    world.layers.fail_next_freeze = True
    assert (await world.ask("POST", f"{one}/fork", {})).status == 500
    assert world.machine_of(sandbox_id) is machine
    await _whole(world, sandbox_id, layers=0)
    (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
    assert world.machine_of(copy["sandbox_id"]).memory == "kept"


@in_complete_world
async def test_a_nap_that_is_cancelled_ends_as_one_that_is_not(world: World) -> None:
    sandbox_id, _ = await _made(world)
    machine = world.machine_of(sandbox_id)
    sandbox = world.system.registry.sandbox(sandbox_id)
    held = world.host.hold("detach_files")
    forking = asyncio.create_task(world.system.forks.fork(sandbox, 1))
    await world.until(lambda: "detach_files" in world.host.methods(machine.machine_id))
    for _ in range(3):
        forking.cancel()
        await asyncio.sleep(0)
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await forking
    assert world.machine_of(sandbox_id) is machine
    await _whole(world, sandbox_id, layers=1)
    assert len(world.host.machines) == 1


@in_complete_world
async def test_a_machine_that_crashes_after_a_nap_is_seen_to(world: World) -> None:
    sandbox_id, one = await _made(world)
    assert (await world.ask("POST", f"{one}/fork", {})).status == 200
    world.machine_of(sandbox_id).crash()
    sandbox = world.system.registry.sandbox(sandbox_id)
    await world.until(lambda: sandbox.row.state == "crashed" and sandbox.running is None)


@in_complete_world
async def test_a_sandbox_whose_supervisor_died_in_the_middle_of_a_nap_goes_on(world: World) -> None:
    sandbox_id, _ = await _made(world)
    machine = world.machine_of(sandbox_id)
    sandbox = world.system.registry.sandbox(sandbox_id)
    world.host.hold("detach_files")
    forking = asyncio.create_task(world.system.forks.fork(sandbox, 1))
    await world.until(lambda: "detach_files" in world.host.methods(machine.machine_id))
    await world.crash()
    await world.start()
    await world.until(lambda: world.system.registry.sandbox(sandbox_id).row.state == "running")
    assert world.machine_of(sandbox_id) is not machine
    await _whole(world, sandbox_id, layers=0)
    assert world.system.registry.sandbox(sandbox_id).row.reason is None
    forking.cancel()
