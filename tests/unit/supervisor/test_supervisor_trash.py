"""What is erased after the answer: who asked waits for nothing, and nothing of it stays."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.host import remove_tree
from tests.unit.supervisor.harness import Harness, with_harness

ERASE = "atoll.supervisor.storage.trash.remove_tree"
FREE = "atoll.supervisor.storage.trash.free_bytes"


@contextlib.contextmanager
def slow() -> Iterator[None]:
    """Erase nothing within the block."""
    over = threading.Event()

    def erase(path: Path, stopped: Callable[[], bool]) -> None:
        over.wait()
        remove_tree(path, stopped)

    with patch(ERASE, erase):
        try:
            yield
        finally:
            over.set()


def dead(path: Path, stopped: Callable[[], bool]) -> None:
    """What a supervisor erases that was killed before it had begun with it."""
    raise InterruptedError


def trash(harness: Harness) -> list[Path]:
    return list(harness.home.snapshots.glob(".erased-*"))


def is_empty(harness: Harness) -> bool:
    return list(harness.home.snapshots.iterdir()) == list(harness.home.sandboxes.iterdir()) == []


@with_harness
async def test_what_was_killed_is_gone_before_it_is_erased(harness: Harness) -> None:
    made = await harness.create(name="one")
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    (harness.home.sandboxes / made["sandbox_id"] / "big").write_bytes(b"x" * (1 << 20))
    with slow():
        assert (await harness.ask("DELETE", one)).status == 204
        assert trash(harness)
        assert (await harness.ask("GET", one)).status == 404
        assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
        assert list(harness.home.sandboxes.iterdir()) == []
        assert (await harness.ask("GET", "/v1/leftovers")).json == []
        report = (await harness.ask("GET", "/v1/disk")).json
        assert report["total_bytes"] < 1 << 20
        assert report["leftover_bytes"] == 0
        again = await harness.create(name="one")
        assert again["sandbox_id"] != made["sandbox_id"]
    await harness.until(lambda: not trash(harness))


@with_harness
async def test_what_was_deleted_is_gone_before_it_is_erased(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
    assert (await harness.ask("DELETE", one)).status == 204
    with slow():
        assert (await harness.ask("DELETE", "/v1/snapshots/s1")).status < 300
        assert trash(harness) == list(harness.home.snapshots.iterdir()) != []
        assert (await harness.ask("GET", "/v1/snapshots")).json == []
        assert harness.layers.ids() == []
    await harness.until(lambda: is_empty(harness))


@with_harness
async def test_copies_that_fail_are_gone_before_they_are_erased(harness: Harness) -> None:
    made = await harness.create()
    harness.agents.fail_after = 2
    with slow():
        answer = await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/fork", {"count": 3})
        assert answer.status == 500
        assert trash(harness)
        assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [made["sandbox_id"]]
    await harness.until(lambda: not trash(harness))


@with_harness
async def test_the_next_supervisor_erases_what_one_that_was_killed_has_moved_away(harness: Harness) -> None:
    made = await harness.create()
    with patch(ERASE, dead):
        assert (await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")).status == 204
        await harness.until(lambda: not harness.system.trash.busy)
        await harness.crash()
    assert trash(harness)
    with slow():
        await harness.start()  # it does not wait for it
        assert (await harness.ask("GET", "/v1/leftovers")).json == []
    await harness.until(lambda: is_empty(harness))


@with_harness
async def test_the_next_supervisor_erases_what_one_that_was_killed_would_have_moved_away(
    harness: Harness,
) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.inventory.change(sandbox, durable=True, state="killed", name=None)
    await harness.crash()
    with slow():
        await harness.start()
        assert trash(harness)
        assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
        assert harness.system.inventory.all() == []
    await harness.until(lambda: is_empty(harness))


@with_harness
async def test_a_supervisor_that_ends_leaves_what_takes_too_long_to_the_next(harness: Harness) -> None:
    made = await harness.create()

    def erase(path: Path, stopped: Callable[[], bool]) -> None:
        while not stopped():
            threading.Event().wait(0.005)
        raise InterruptedError

    with patch(ERASE, erase), patch("atoll.supervisor.system._ERASE_S", 0.01):
        assert (await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")).status == 204
        assert not harness.system.keeper.may_leave()
        await harness.aclose()
    assert trash(harness)
    await harness.start()
    await harness.until(lambda: is_empty(harness))


@with_harness
async def test_a_supervisor_that_ends_erases_what_takes_no_time(harness: Harness) -> None:
    made = await harness.create()
    assert (await harness.ask("DELETE", f"/v1/sandboxes/{made['sandbox_id']}")).status == 204
    await harness.aclose()
    assert is_empty(harness)
    await harness.start()


@pytest.mark.parametrize("asked", ["kill", "delete", "prune", "gc", "create"])
def test_who_needs_space_gets_the_answer_when_it_is_there(asked: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
        if asked == "delete":
            assert (await harness.ask("DELETE", one)).status == 204
        wanted: dict[str, tuple[str, str, object]] = {
            "kill": ("DELETE", one, None),
            "delete": ("DELETE", "/v1/snapshots/s1", None),
            "prune": ("DELETE", "/v1/steps", None),
            "gc": ("DELETE", "/v1/leftovers", None),
            "create": ("POST", "/v1/sandboxes", {"from_snapshot": "s1"}),
        }
        stale = harness.home.sandboxes / "stale"
        stale.mkdir()
        with patch(FREE, return_value=1 << 20), slow():
            harness.system.trash.take(stale)
            asking = asyncio.create_task(harness.ask(*wanted[asked]))
            await asyncio.sleep(0.1)
            assert not asking.done()
        assert (await asking).status < 300
        assert trash(harness) == []

    with_harness(lived)()
