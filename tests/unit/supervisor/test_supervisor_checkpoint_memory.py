"""What is written for copies only lies in memory, where there is room, and copies begin before all of it is written."""

from __future__ import annotations

import asyncio
import contextlib
import os
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
from atoll.supervisor.machines.checkpoint_memory import CheckpointMemory
from atoll.testing.fake_engine import FakeMachine
from tests.unit.supervisor.harness import Harness, with_harness


async def _made(harness: Harness) -> tuple[str, str]:
    made = await harness.create()
    return made["sandbox_id"], f"/v1/sandboxes/{made['sandbox_id']}"


async def _listed(harness: Harness) -> list[dict[str, object]]:
    listed: list[dict[str, object]] = (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"]
    return listed


@contextlib.contextmanager
def _much_memory(harness: Harness, sandbox_id: str) -> Iterator[Path]:
    """Let the place of forks lie in memory, where there is room for that sandbox."""
    harness.machine_of(sandbox_id).memory_used_bytes = 1 << 20
    place, pages = harness.home.run / "forks", harness.home.run / "pages"
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


@with_harness
async def test_what_is_written_for_copies_only_lies_in_memory_until_they_run(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    harness.machine_of(sandbox_id).memory = "shared"
    with _much_memory(harness, sandbox_id) as place:
        for state in ("running", "paused"):
            if state == "paused":
                await harness.ask("POST", f"{one}/pause")
            (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
            made = harness.machine_of(copy["sandbox_id"])
            assert made.memory == "shared"
            assert made.plan.checkpoint is not None
            assert made.plan.checkpoint.parent == place
            await harness.until(lambda: _in(place) == [])
        await harness.ask("POST", f"{one}/resume")
        (copy,) = (await harness.ask("POST", f"{one}/fork", {})).json
        machine_id = harness.machine_of(sandbox_id).machine_id
        wanted = ["prepare", "reserve", "pause", "checkpoint", "resume", "restorable", "written"]
        # "written" may come after the answer, and its use is measured at any time
        await harness.until(
            lambda: [each for each in harness.host.methods(machine_id) if each != "stats"][-7:] == wanted
        )
        await harness.until(lambda: list(harness.home.snapshots.iterdir()) == [])
        harness.agents.fail_after = 0
        assert (await harness.ask("POST", f"{one}/fork", {})).status == 500
        await harness.until(lambda: _in(place) == [])


@with_harness
async def test_where_memory_has_no_room_copies_are_made_over_the_disk(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    machine = harness.machine_of(sandbox_id)
    with _much_memory(harness, sandbox_id) as place:
        harness.host.fail_next("reserve", NoSpaceError("full"))
        (first,) = (await harness.ask("POST", f"{one}/fork", {})).json
        machine.memory_used_bytes = 1 << 60
        (second,) = (await harness.ask("POST", f"{one}/fork", {})).json
        for copy in (first, second):
            made = harness.machine_of(copy["sandbox_id"])
            assert made.plan.checkpoint is not None
            assert made.plan.checkpoint.parent == harness.home.snapshots
        assert _in(place) == []
    assert not machine.paused
    assert harness.layers.ids() != []


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
        place = CheckpointMemory(tmp_path / "forks", tmp_path / "pages")
        with place.place("a", gib) as first, place.place("b", gib) as second:
            assert first is not None
            assert second is None
        with place.place("c", gib) as third, place.place("d", gib // 8) as fourth:
            assert None not in (third, fourth)
        with place.place("e", 2 * gib) as too_much:
            assert too_much is None


@with_harness
async def test_what_a_fork_has_left_in_memory_is_a_leftover(harness: Harness) -> None:
    sandbox_id, _ = await _made(harness)
    with _much_memory(harness, sandbox_id) as place:
        left = {place / "fork-1", place.parent / "pages" / "fork-1"}
        for path in left:
            path.mkdir()
        shown = (await harness.ask("DELETE", "/v1/leftovers")).json
        assert {Path(one["name"]) for one in shown} == left
        assert _in(place) == []


@with_harness
async def test_a_copy_begins_while_the_memory_is_written_and_is_told_of_when_it_is(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    original = harness.machine_of(sandbox_id)
    with _much_memory(harness, sandbox_id):
        writing = harness.host.hold("written")
        forking = asyncio.create_task(harness.ask("POST", f"{one}/fork", {"count": 2}))
        await harness.until(lambda: len(harness.host.machines) == 3)
        copies = [machine for machine in harness.host.machines.values() if machine is not original]
        assert all(machine.plan.being_written for machine in copies)
        # Nobody else may take its state meanwhile.
        pausing = asyncio.create_task(harness.ask("POST", f"{one}/pause"))
        await asyncio.sleep(0.1)
        assert not original.paused
        assert [each["sandbox_id"] for each in await _listed(harness)] == [sandbox_id]
        writing.set()
        assert len((await forking).json) == 2
        assert (await pausing).status == 200
        assert len(await _listed(harness)) == 3


@with_harness
async def test_a_copy_has_room_in_its_volumes_while_the_memory_is_written(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 12})
    one = (await harness.create(volumes={"/data": "data"}))["sandbox_id"]
    machines = harness.host.machines

    def rooms() -> list[int]:
        told = [each.budgets for each in machines.values() if isinstance(each, FakeMachine)]
        return [0 if each is None else each["/data"].size_bytes >> 20 for each in told]

    await harness.until(lambda: rooms() == [12])
    with _much_memory(harness, one):
        writing = harness.host.hold("written")
        forking = asyncio.create_task(harness.ask("POST", f"/v1/sandboxes/{one}/fork", {"count": 2}))
        await harness.until(lambda: rooms() == [4, 4, 4])
        assert not forking.done()
        writing.set()
        assert (await forking).status == 200
    # Each is counted once.
    event_fd = harness.machine_of(one).rooms_event_fd
    assert event_fd is not None
    before = len(harness.host.calls)
    os.eventfd_write(event_fd, 1)
    await harness.until(lambda: "limit_volumes" in [call.method for call in harness.host.calls[before:]])
    assert rooms() == [4, 4, 4]


@with_harness
async def test_no_copy_is_left_of_a_sandbox_whose_memory_could_not_be_written(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    original = harness.machine_of(sandbox_id)
    with _much_memory(harness, sandbox_id) as place:
        harness.host.fail_next("written", EngineError("cut short"))
        assert (await harness.ask("POST", f"{one}/fork", {"count": 3})).status == 500
        writing = harness.host.hold("written")
        forking = asyncio.create_task(harness.ask("POST", f"{one}/fork", {"count": 3}))
        await harness.until(lambda: len(harness.host.machines) == 4)
        original.crash()
        assert (await forking).json["code"] == "sandbox_crashed"
        writing.set()
        await harness.until(lambda: _in(place) == [])
    assert [each["sandbox_id"] for each in await _listed(harness)] == [sandbox_id]
    assert [machine for machine in harness.host.machines.values() if machine is not original] == []
    assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [sandbox_id]
    await harness.until(lambda: harness.layers.ids() == [])


@with_harness
async def test_a_memory_that_outgrows_its_room_while_it_is_written_goes_to_the_disk(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    original = harness.machine_of(sandbox_id)
    with _much_memory(harness, sandbox_id) as place:
        harness.host.fail_next("written", NoSpaceError("no space left on device"))
        assert len((await harness.ask("POST", f"{one}/fork", {"count": 2})).json) == 2
        assert harness.host.methods(original.machine_id).count("checkpoint") == 2
        await harness.until(lambda: _in(place) == [])
        for each in ("written", "reserve"):
            harness.host.fail_next(each, NoSpaceError("no space left on device"))
        answer = await harness.ask("POST", f"{one}/fork", {"count": 2})
        assert (answer.status, answer.json["code"]) == (507, "no_space")
    assert len(await _listed(harness)) == len(harness.host.machines) == 3


@with_harness
async def test_a_fork_that_fails_does_not_wait_for_the_memory(harness: Harness) -> None:
    sandbox_id, one = await _made(harness)
    with _much_memory(harness, sandbox_id) as place:
        writing = harness.host.hold("written")
        harness.agents.fail_after = 0
        assert (await harness.ask("POST", f"{one}/fork", {})).status == 500
        writing.set()
        await harness.until(lambda: _in(place) == [])
    assert len(harness.host.machines) == 1


@pytest.mark.parametrize(("what", "method"), [("layers", "branch"), ("running_machines", "_make_state_dir")])
def test_a_copy_that_a_thread_is_still_at_when_its_fork_fails_leaves_nothing(what: str, method: str) -> None:
    async def lived(harness: Harness) -> None:
        sandbox_id, one = await _made(harness)
        original = harness.machine_of(sandbox_id)
        makes = harness.layers if what == "layers" else harness.system.running_machines
        make, begun, ended = getattr(makes, method), threading.Event(), threading.Event()

        def make_late(*arguments: object) -> object:
            begun.set()
            time.sleep(0.5)
            try:
                return make(*arguments)
            finally:
                ended.set()

        with _much_memory(harness, sandbox_id) as place, patch.object(makes, method, make_late):
            writing = harness.host.hold("written")
            forking = asyncio.create_task(harness.ask("POST", f"{one}/fork", {}))
            await asyncio.to_thread(begun.wait, 60)
            original.crash()
            assert (await forking).json["code"] == "sandbox_crashed"
            assert await asyncio.to_thread(ended.wait, 60)
            writing.set()
            await harness.until(lambda: _in(place) == [])
        assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [sandbox_id]
        assert {entry.name for entry in (harness.home.run / "m").iterdir()} <= {original.machine_id}

    with_harness(lived)()
