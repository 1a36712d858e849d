"""A running sandbox stands beside its disk while the layer below it is frozen."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from atoll.errors import EngineError
from atoll.supervisor.settings import Settings
from tests.unit.supervisor.harness import Harness, with_harness_of

in_complete_world = with_harness_of(Settings(pool_size=0), complete=True)


async def _made(harness: Harness) -> tuple[str, str]:
    """A sandbox with so much on its disk that a copy of it freezes the layer."""
    sandbox_id = (await harness.create())["sandbox_id"]
    harness.machine_of(sandbox_id).memory = "kept"
    harness.layers.has_much = True
    return sandbox_id, f"/v1/sandboxes/{sandbox_id}"


async def _whole(harness: Harness, sandbox_id: str, layers: int) -> None:
    """See that a sandbox runs with its memory, on so many frozen layers, and that nothing else is left of it."""
    sandbox = harness.system.inventory.sandbox(sandbox_id)
    machine = harness.machine_of(sandbox_id)
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
    directory = harness.home.sandboxes / sandbox_id
    mine = {"d1", "console.log", "row.json"}
    await harness.until(lambda: {entry.name for entry in directory.iterdir()} <= mine)


@in_complete_world
async def test_a_sandbox_whose_layer_is_frozen_goes_on_as_the_same_machine(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    machine = harness.machine_of(sandbox_id)
    generation = harness.system.inventory.sandbox(sandbox_id).row.generation
    (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
    assert harness.machine_of(sandbox_id) is machine
    assert harness.machine_of(copy["sandbox_id"]).memory == "kept"
    assert harness.system.inventory.sandbox(sandbox_id).row.generation == generation
    calls = harness.host.methods(machine.machine_id)
    assert calls[calls.index("pause") :][:5] == [
        "pause",
        "checkpoint",
        "detach_files",
        "attach_files",
        "resume",
    ]
    await _whole(harness, sandbox_id, layers=1)


@pytest.mark.parametrize("error", [EngineError("lost"), KeyError("what nobody expects")])
@pytest.mark.parametrize("failing", ["detach_files", "attach_files"])
def test_a_machine_that_does_not_find_back_is_replaced_by_another_with_its_memory(
    failing: str, error: Exception
) -> None:
    @in_complete_world
    async def lived(harness: Harness) -> None:
        sandbox_id, one = await _made(harness)
        machine = harness.machine_of(sandbox_id)
        harness.host.fail_next(failing, error)
        assert (await harness.ask("POST", f"{one}/fork", {})).status == 200
        assert harness.machine_of(sandbox_id) is not machine
        assert not machine.alive
        await _whole(harness, sandbox_id, layers=1)

    lived()


@in_complete_world
async def test_a_machine_that_dies_beside_its_disk_is_replaced_by_another_with_its_memory(
    harness: Harness,
) -> None:
    sandbox_id, one = await _made(harness)
    machine = harness.machine_of(sandbox_id)

    async def note(method: str, machine_id: str, before: Any = harness.host.note) -> None:
        if method == "attach_files":
            machine.crash()
            raise EngineError("nobody answers")
        await before(method, machine_id)

    harness.host.note = note  # type: ignore[method-assign]
    assert (await harness.ask("POST", f"{one}/fork", {})).status == 200
    assert harness.machine_of(sandbox_id) is not machine
    await _whole(harness, sandbox_id, layers=1)


@in_complete_world
async def test_a_layer_that_does_not_freeze_leaves_the_sandbox_as_it_was(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    machine = harness.machine_of(sandbox_id)
    harness.layers.fail_next_freeze = True
    assert (await harness.ask("POST", f"{one}/fork", {})).status == 500
    assert harness.machine_of(sandbox_id) is machine
    await _whole(harness, sandbox_id, layers=0)
    (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
    assert harness.machine_of(copy["sandbox_id"]).memory == "kept"


@in_complete_world
async def test_a_nap_that_is_cancelled_ends_as_one_that_is_not(harness: Harness) -> None:
    sandbox_id, _ = await _made(harness)
    machine = harness.machine_of(sandbox_id)
    sandbox = harness.system.inventory.sandbox(sandbox_id)
    held = harness.host.hold("detach_files")
    forking = asyncio.create_task(harness.system.forks.fork(sandbox, 1))
    await harness.until(lambda: "detach_files" in harness.host.methods(machine.machine_id))
    for _ in range(3):
        forking.cancel()
        await asyncio.sleep(0)
    held.set()
    with pytest.raises(asyncio.CancelledError):
        await forking
    assert harness.machine_of(sandbox_id) is machine
    await _whole(harness, sandbox_id, layers=1)
    assert len(harness.host.machines) == 1


@in_complete_world
async def test_a_machine_that_crashes_after_a_nap_is_seen_to(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    assert (await harness.ask("POST", f"{one}/fork", {})).status == 200
    harness.machine_of(sandbox_id).crash()
    sandbox = harness.system.inventory.sandbox(sandbox_id)
    await harness.until(lambda: sandbox.row.state == "crashed" and sandbox.running is None)


@in_complete_world
async def test_a_sandbox_whose_supervisor_died_in_the_middle_of_a_nap_goes_on(harness: Harness) -> None:
    sandbox_id, _ = await _made(harness)
    machine = harness.machine_of(sandbox_id)
    sandbox = harness.system.inventory.sandbox(sandbox_id)
    harness.host.hold("detach_files")
    forking = asyncio.create_task(harness.system.forks.fork(sandbox, 1))
    await harness.until(lambda: "detach_files" in harness.host.methods(machine.machine_id))
    await harness.crash()
    await harness.start()
    await harness.until(lambda: harness.system.inventory.sandbox(sandbox_id).row.state == "running")
    assert harness.machine_of(sandbox_id) is not machine
    await _whole(harness, sandbox_id, layers=0)
    assert harness.system.inventory.sandbox(sandbox_id).row.reason is None
    forking.cancel()
