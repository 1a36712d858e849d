"""Operations that fail or are cut short halfway, and what is left of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import EngineError, NoSpaceError
from atoll.host import Memory
from atoll.supervisor.lifecycle.warm_machine import Warm
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import OperationRow, SnapshotRow
from atoll.supervisor.state.tasks import Tasks
from tests.unit.supervisor.fakes import DIGEST
from tests.unit.supervisor.harness import Harness, with_harness, with_harness_of


@with_harness
async def test_a_killed_sandbox_that_cannot_be_erased_never_comes_back(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.inventory.change(sandbox, durable=True, state="killed", name=None)
    await harness.crash()

    with patch("atoll.supervisor.storage.trash.mounts_below", return_value=["its disk"]):
        await harness.start()
    assert [entry.name for entry in harness.home.sandboxes.iterdir()] == [made["sandbox_id"]]
    assert (await harness.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
    await harness.crash()
    await harness.start()
    assert harness.system.inventory.all() == []
    assert list(harness.home.sandboxes.iterdir()) == []


@with_harness
async def test_the_leftovers_of_a_cut_short_kill_go_before_its_directory(harness: Harness) -> None:
    made = await harness.create()
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.system.inventory.change(sandbox, durable=True, state="killed", name=None)
    await harness.crash()
    order: list[str] = []

    async def collect(_: object, wait: bool) -> list[object]:
        order.append("collected" if (harness.home.sandboxes / made["sandbox_id"]).exists() else "too late")
        return []

    with patch("atoll.supervisor.recovery.leftovers.LeftoverCollector.collect", collect):
        await harness.start()
    assert order == ["collected"]
    assert list(harness.home.sandboxes.iterdir()) == []


@pytest.mark.parametrize("action", ["kill", "rollback"])
def test_a_link_that_held_a_connection_is_let_go(action: str) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
        (waiting,) = harness.links.open.values()
        waiting.is_held = True
        await harness.asleep(made)
        if action == "kill":
            assert (await harness.ask("DELETE", one)).status < 300
        else:
            assert (await harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).status == 200
        assert not waiting.is_open
        assert len(harness.links.open) == (0 if action == "kill" else 1)

    with_harness(lived)()


def test_what_an_operation_leaves_to_be_done_is_waited_for_before_the_supervisor_leaves() -> None:
    async def lived() -> list[str]:
        tasks, done = Tasks(), list[str]()

        async def rest() -> None:
            await asyncio.to_thread(list)
            done.append("rest")

        async def work() -> None:
            await asyncio.sleep(0)
            tasks.spawn(rest())

        tasks.spawn(work())
        tasks.watch(asyncio.Event().wait())  # type: ignore[arg-type]
        await tasks.finish(60)
        return done

    assert asyncio.run(lived()) == ["rest"]


@with_harness
async def test_a_wake_that_fails_on_a_new_link_resets_connections_the_next_time(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    harness.host.fail_next("start", EngineError("not now"))
    assert (await harness.ask("POST", f"{one}/wake")).status == 500
    assert harness.links.open == {}
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    (link,) = harness.links.open.values()
    assert "reset 1" in link.calls


@with_harness
async def test_a_memory_that_a_failed_suspend_left_does_not_cost_the_next_one(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    stale = harness.home.sandboxes / made["sandbox_id"] / "checkpoint"
    stale.mkdir()
    (stale / "pages").write_text("old")
    harness.machine_of(made["sandbox_id"]).memory = "remembered"
    assert (await harness.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
    await harness.ask("POST", f"{one}/wake")
    assert harness.machine_of(made["sandbox_id"]).memory == "remembered"


@contextlib.asynccontextmanager
async def removing(harness: Harness, name: str) -> AsyncIterator[None]:
    """Inside the block a snapshot's row is being deleted."""
    begun, go_on = asyncio.Event(), asyncio.Event()
    delete = harness.system.database.delete

    async def slowly(*rows: Any, **how: Any) -> None:
        if isinstance(rows[0], SnapshotRow) and rows[0].name == name:
            begun.set()
            await go_on.wait()
        await delete(*rows, **how)

    with patch.object(harness.system.database, "delete", slowly):
        task = asyncio.create_task(harness.ask("DELETE", f"/v1/snapshots/{name}"))
        await begun.wait()
        yield
        go_on.set()
        assert (await task).status < 300


@with_harness
async def test_a_snapshot_that_is_being_removed_is_no_source_any_more(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
    async with removing(harness, "s1"):
        refused = await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": "s1"})
    assert refused.status == 404
    await harness.until(lambda: list(harness.home.snapshots.iterdir()) == [])
    assert len(harness.host.machines) == 1


@with_harness
async def test_a_snapshot_that_is_being_removed_is_not_listed_and_holds_no_parent(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    for name in ("s1", "s2"):
        assert (await harness.ask("POST", f"{one}/snapshots", {"name": name})).status == 200
    assert (await harness.ask("DELETE", one)).status == 204
    async with removing(harness, "s2"):
        assert [each["name"] for each in (await harness.ask("GET", "/v1/snapshots")).json] == ["s1"]
        assert (await harness.ask("DELETE", "/v1/snapshots/s2")).status == 404
        assert (await harness.ask("DELETE", "/v1/snapshots/s1")).status == 204
    await harness.until(lambda: list(harness.home.snapshots.iterdir()) == [])


@with_harness
async def test_a_snapshot_that_a_waiting_rollback_wants_is_not_removed(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await harness.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
    inventory = harness.system.inventory
    sandbox = inventory.sandbox(made["sandbox_id"])
    async with sandbox.lock:
        rolling = asyncio.create_task(harness.ask("POST", f"{one}/rollback", {"snapshot": "s1"}))
        await harness.until(lambda: harness.system.tasks.busy)
        await harness.until(lambda: inventory.pins.has(inventory.snapshot("s1").snapshot_id))
        assert (await harness.ask("DELETE", "/v1/snapshots/s1")).status == 409
    assert (await rolling).status == 200


@with_harness_of(Settings(pool_size=1))
async def test_a_create_that_fails_for_want_of_disk_keeps_no_warm_machine(harness: Harness) -> None:
    await harness.create()
    await harness.until(lambda: harness.system.pool.ids())
    (ready,) = harness.system.pool.ids()
    with patch.object(harness.system.inventory, "add", side_effect=OSError(28, "No space left on device")):
        assert (await harness.ask("POST", "/v1/sandboxes", {"name": "two"})).status >= 400
    await harness.until(lambda: harness.system.pool.ids())
    assert not (harness.home.sandboxes / ready).exists()
    assert len([machine for machine in harness.host.machines.values() if machine.alive]) == 2
    assert len(harness.links.open) == 2


def test_a_write_that_finds_the_disk_full_says_so_and_the_next_one_works(tmp_path: Path) -> None:
    async def lived() -> None:
        database = Database(tmp_path / "state.db")
        await database.open()
        try:
            connection = database._connected()
            connection.execute("CREATE TABLE big (content BLOB)")
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count={pages}")
            statement: tuple[str, list[object]] = ("INSERT INTO big VALUES (zeroblob(1000000))", [])
            with pytest.raises(NoSpaceError):
                database._transact([statement], durable=True)
            connection.execute(f"PRAGMA max_page_count={pages + 1000}")
            database._transact([statement], durable=True)
        finally:
            await database.aclose()

    asyncio.run(lived())


@with_harness_of(Settings(pool_size=1))
async def test_the_pool_keeps_machines_only_for_the_images_that_were_used_last(harness: Harness) -> None:
    pool = harness.system.pool
    digests = [f"sha256-{number:064}" for number in range(6)]
    for digest in digests:
        pool.refill(digest)
    pool.refill(digests[2])
    await harness.until(lambda: len(pool.ids()) == 4 and not harness.system.tasks.busy)
    assert set(pool._warm) == set(digests[2:])
    pool.refill("sha256-" + "9" * 64)
    await harness.until(lambda: len(pool.ids()) == 4 and digests[3] not in pool._warm)
    await harness.until(lambda: len(list(harness.home.sandboxes.iterdir())) == len(harness.links.open) == 4)


@with_harness_of(Settings(pool_size=1))
async def test_the_pool_is_not_filled_while_memory_is_short(harness: Harness) -> None:
    pool = harness.system.pool
    with patch.object(pool, "memory", return_value=Memory(8 << 30, 1 << 28)):
        await harness.create()
        await harness.until(lambda: not pool._making)
        assert not pool.ids()
    await harness.create()
    await harness.until(pool.ids)


@with_harness_of(Settings(pool_size=1))
async def test_an_image_that_cannot_be_read_costs_the_pool_no_link(harness: Harness) -> None:
    pool = harness.system.pool
    with patch.object(harness.images, "get", side_effect=PermissionError("not for you")):
        pool.refill(DIGEST)
        await harness.until(lambda: not pool._making)
    assert harness.links.open == {}
    assert list(harness.home.sandboxes.iterdir()) == []
    pool.refill(DIGEST)
    await harness.until(pool.ids)


@with_harness_of(Settings(pool_size=1))
async def test_the_pool_can_be_emptied_while_another_image_gets_its_first_machine(harness: Harness) -> None:
    await harness.create()
    pool = harness.system.pool
    await harness.until(pool.ids)
    discard = pool.discard

    async def another_image_meanwhile(warm: Warm) -> None:
        pool._warm.setdefault("another", [])
        await discard(warm)

    with patch.object(pool, "discard", another_image_meanwhile):
        await pool.drain()
    assert pool.ids() == set()
    assert len([machine for machine in harness.host.machines.values() if machine.alive]) == 1


@with_harness
async def test_a_machine_that_cannot_be_thawed_after_a_restart_does_not_run_beside_the_next(
    harness: Harness,
) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    running = harness.system.inventory.sandbox(made["sandbox_id"]).running
    assert running is not None
    await running.freeze()
    await harness.crash()
    harness.agents.deaf = True
    for _ in range(3):
        harness.host.fail_next("resume", EngineError("it does not answer"))
    await harness.start()
    harness.agents.deaf = False
    assert (await harness.ask("GET", one)).json["state"] == "crashed"
    assert not any(machine.alive for machine in harness.host.machines.values())
    assert harness.links.open == {}
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@pytest.mark.parametrize("asked", [("POST", "/wake", 200), ("POST", "/fork", 200), ("DELETE", "", 204)])
def test_a_suspend_is_answered_before_its_machine_has_ended_and_what_comes_next_waits_for_that(
    asked: tuple[str, str, int],
) -> None:
    async def lived(harness: Harness) -> None:
        made = await harness.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        machine, sandbox = (
            harness.machine_of(made["sandbox_id"]),
            harness.system.inventory.sandbox(made["sandbox_id"]),
        )
        machine.memory = "remembered"
        (link,) = harness.links.open.values()
        ended = harness.host.hold("kill")
        assert (await harness.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
        assert machine.paused
        assert link.calls[-1] == "end_dialled"
        assert (await harness.ask("GET", "/v1/leftovers")).json == []
        coming = asyncio.create_task(harness.ask(asked[0], f"{one}{asked[1]}"))
        await harness.until(lambda: sandbox.lock._waiters)
        assert list(harness.host.machines) == [machine.machine_id]
        assert (await harness.ask("GET", one)).json["state"] == "suspended"
        ended.set()
        assert (await coming).status == asked[2]
        assert machine.machine_id not in harness.host.machines
        assert {one.memory for one in harness.host.machines.values()} <= {"remembered"}
        await harness.until(lambda: not harness.system.tasks.busy)
        assert await harness.system.database.all(OperationRow) == []

    with_harness(lived)()


@with_harness
async def test_a_machine_that_does_not_end_after_a_suspend_is_ended_by_the_next_use(harness: Harness) -> None:
    made = await harness.create()
    harness.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    await harness.asleep(made)
    assert len(harness.host.machines) == 1
    assert (await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).json["state"] == "running"
    assert list(harness.host.machines) == [harness.machine_of(made["sandbox_id"]).machine_id]


@with_harness
async def test_a_supervisor_that_stops_waits_for_the_ends_of_what_sleeps(harness: Harness) -> None:
    made = await harness.create()
    ended = harness.host.hold("kill")
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/suspend")
    closing = asyncio.create_task(harness.system.tasks.finish(60))
    asyncio.get_running_loop().call_soon(ended.set)
    await closing
    assert harness.host.machines == {}
    assert (harness.home.sandboxes / made["sandbox_id"] / "checkpoint" / "checksums.json").exists()
