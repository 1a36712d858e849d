"""What is written for copies only lies in memory, where there is room, and copies begin before all of it is written."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.errors import EngineError, NoSpaceError
from atoll.host import Memory
from atoll.supervisor.machines.checkpoint_memory import MemoryPlace
from atoll.supervisor.state.rows import Versions
from tests.unit.supervisor.world import World, in_world


async def _made(world: World) -> tuple[str, str]:
    made = await world.create()
    return made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"


async def _listed(world: World) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    return listed


@contextlib.contextmanager
def _much_memory(world: World, sandbox_id: str) -> Iterator[Path]:
    """Let the place of forks lie in memory, where there is room for that sandbox."""
    world.machine_of(sandbox_id).memory_used_bytes = 1 << 20
    place, pages = world.home.run / "forks", world.home.run / "pages"
    place.mkdir()
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        pages.symlink_to(memory)
        try:
            yield place
        finally:
            pages.unlink()


def _in(place: Path) -> list[Path]:
    """What there is of forks, their memory too."""
    return [*place.iterdir(), *(place.parent / "pages").iterdir()]


@in_world
async def test_what_is_written_for_copies_only_lies_in_memory_until_they_run(world: World) -> None:
    sandbox_id, one = await _made(world)
    world.machine_of(sandbox_id).memory = "shared"
    with _much_memory(world, sandbox_id) as place:
        for state in ("running", "paused"):
            if state == "paused":
                await world.ask("POST", f"{one}/pause")
            (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
            made = world.machine_of(copy["sandbox_id"])
            assert made.memory == "shared"
            assert made.plan.checkpoint is not None
            assert made.plan.checkpoint.parent == place
            await world.until(lambda: _in(place) == [])
        await world.ask("POST", f"{one}/resume")
        (copy,) = (await world.ask("POST", f"{one}/fork", {})).json
        asked = world.host.methods(world.machine_of(sandbox_id).machine_id)
        assert asked[-7:] == ["prepare", "reserve", "pause", "checkpoint", "resume", "restorable", "written"]
        await world.until(lambda: list(world.home.snapshots.iterdir()) == [])
        world.agents.fail_after = 0
        assert (await world.ask("POST", f"{one}/fork", {})).status == 500
        await world.until(lambda: _in(place) == [])


@in_world
async def test_where_memory_has_no_room_copies_are_made_over_the_disk(world: World) -> None:
    sandbox_id, one = await _made(world)
    machine = world.machine_of(sandbox_id)
    with _much_memory(world, sandbox_id) as place:
        world.host.fail_next("reserve", NoSpaceError("full"))
        (first,) = (await world.ask("POST", f"{one}/fork", {})).json
        machine.memory_used_bytes = 1 << 60
        (second,) = (await world.ask("POST", f"{one}/fork", {})).json
        for copy in (first, second):
            made = world.machine_of(copy["sandbox_id"])
            assert made.plan.checkpoint is not None
            assert made.plan.checkpoint.parent == world.home.snapshots
        assert _in(place) == []
    assert not machine.paused
    assert world.layers.ids() != []


@in_world
async def test_a_machine_of_an_older_engine_is_copied_over_the_disk(world: World) -> None:
    sandbox_id, one = await _made(world)
    sandbox = world.system.registry.sandbox(sandbox_id)
    older = Versions(engine="older", agent=sandbox.row.versions.agent)
    with _much_memory(world, sandbox_id):
        await world.system.registry.change(sandbox, versions=older)
        assert (await world.ask("POST", f"{one}/fork", {})).status == 200
    asked = world.host.methods(world.machine_of(sandbox_id).machine_id)
    assert asked[-5:] == ["prepare", "pause", "checkpoint", "resume", "written"]


def test_room_in_memory_is_promised_to_one_fork_only(tmp_path: Path) -> None:
    gib = 1 << 30
    usage = shutil._ntuple_diskusage(4 * gib, gib, 3 * gib)
    with (
        tempfile.TemporaryDirectory(dir="/dev/shm") as memory,
        patch("atoll.supervisor.machines.checkpoint_memory.read_memory", lambda: Memory(16 * gib, 8 * gib)),
        patch("shutil.disk_usage", lambda _: usage),
    ):
        (tmp_path / "forks").mkdir()
        (tmp_path / "pages").symlink_to(memory)
        place = MemoryPlace(tmp_path / "forks", tmp_path / "pages")
        with place.room("a", gib) as first, place.room("b", gib) as second:
            assert first is not None
            assert second is None
        with place.room("c", gib) as third, place.room("d", gib // 8) as fourth:
            assert None not in (third, fourth)
        with place.room("e", 2 * gib) as too_much:
            assert too_much is None


@in_world
async def test_what_a_fork_has_left_in_memory_is_a_leftover(world: World) -> None:
    sandbox_id, _ = await _made(world)
    with _much_memory(world, sandbox_id) as place:
        left = {place / "fork-1", place.parent / "pages" / "fork-1"}
        for path in left:
            path.mkdir()
        shown = (await world.ask("DELETE", "/v1/leftovers")).json
        assert {Path(one["name"]) for one in shown} == left
        assert _in(place) == []


@in_world
async def test_a_copy_begins_while_the_memory_is_written_and_is_told_of_when_it_is(world: World) -> None:
    sandbox_id, one = await _made(world)
    original = world.machine_of(sandbox_id)
    with _much_memory(world, sandbox_id):
        writing = world.host.hold("written")
        forking = asyncio.create_task(world.ask("POST", f"{one}/fork", {"count": 2}))
        await world.until(lambda: len(world.host.machines) == 3)
        copies = [machine for machine in world.host.machines.values() if machine is not original]
        assert all(machine.plan.being_written for machine in copies)
        # Nobody else may take its state meanwhile.
        pausing = asyncio.create_task(world.ask("POST", f"{one}/pause"))
        await asyncio.sleep(0.1)
        assert not original.paused
        assert [each["sandbox_id"] for each in await _listed(world)] == [sandbox_id]
        writing.set()
        assert len((await forking).json) == 2
        assert (await pausing).status == 200
        assert len(await _listed(world)) == 3


@in_world
async def test_no_copy_is_left_of_a_sandbox_whose_memory_could_not_be_written(world: World) -> None:
    sandbox_id, one = await _made(world)
    original = world.machine_of(sandbox_id)
    with _much_memory(world, sandbox_id) as place:
        world.host.fail_next("written", EngineError("cut short"))
        assert (await world.ask("POST", f"{one}/fork", {"count": 3})).status == 500
        writing = world.host.hold("written")
        forking = asyncio.create_task(world.ask("POST", f"{one}/fork", {"count": 3}))
        await world.until(lambda: len(world.host.machines) == 4)
        original.crash()
        assert (await forking).json["code"] == "sandbox_crashed"
        writing.set()
        await world.until(lambda: _in(place) == [])
    assert [each["sandbox_id"] for each in await _listed(world)] == [sandbox_id]
    assert [machine for machine in world.host.machines.values() if machine is not original] == []
    assert [entry.name for entry in world.home.sandboxes.iterdir()] == [sandbox_id]
    await world.until(lambda: world.layers.ids() == [])


@in_world
async def test_a_memory_that_outgrows_its_room_while_it_is_written_goes_to_the_disk(world: World) -> None:
    sandbox_id, one = await _made(world)
    original = world.machine_of(sandbox_id)
    with _much_memory(world, sandbox_id) as place:
        world.host.fail_next("written", NoSpaceError("no space left on device"))
        assert len((await world.ask("POST", f"{one}/fork", {"count": 2})).json) == 2
        assert world.host.methods(original.machine_id).count("checkpoint") == 2
        await world.until(lambda: _in(place) == [])
        for each in ("written", "reserve"):
            world.host.fail_next(each, NoSpaceError("no space left on device"))
        answer = await world.ask("POST", f"{one}/fork", {"count": 2})
        assert (answer.status, answer.json["code"]) == (507, "no_space")
    assert len(await _listed(world)) == len(world.host.machines) == 3


@in_world
async def test_a_fork_that_fails_does_not_wait_for_the_memory(world: World) -> None:
    sandbox_id, one = await _made(world)
    with _much_memory(world, sandbox_id) as place:
        writing = world.host.hold("written")
        world.agents.fail_after = 0
        assert (await world.ask("POST", f"{one}/fork", {})).status == 500
        writing.set()
        await world.until(lambda: _in(place) == [])
    assert len(world.host.machines) == 1


@pytest.mark.parametrize(("what", "method"), [("layers", "branch"), ("running_machines", "_make_state_dir")])
def test_a_copy_that_a_thread_is_still_at_when_its_fork_fails_leaves_nothing(what: str, method: str) -> None:
    async def lived(world: World) -> None:
        sandbox_id, one = await _made(world)
        original = world.machine_of(sandbox_id)
        makes = world.layers if what == "layers" else world.system.running_machines
        make, begun, ended = getattr(makes, method), threading.Event(), threading.Event()

        def make_late(*arguments: object) -> object:
            begun.set()
            time.sleep(0.5)
            try:
                return make(*arguments)
            finally:
                ended.set()

        with _much_memory(world, sandbox_id) as place, patch.object(makes, method, make_late):
            writing = world.host.hold("written")
            forking = asyncio.create_task(world.ask("POST", f"{one}/fork", {}))
            await asyncio.to_thread(begun.wait, 60)
            original.crash()
            assert (await forking).json["code"] == "sandbox_crashed"
            assert await asyncio.to_thread(ended.wait, 60)
            writing.set()
            await world.until(lambda: _in(place) == [])
        assert [entry.name for entry in world.home.sandboxes.iterdir()] == [sandbox_id]
        assert {entry.name for entry in (world.home.run / "m").iterdir()} <= {original.machine_id}

    in_world(lived)()
