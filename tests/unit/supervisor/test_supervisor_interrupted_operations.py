"""Operations that fail or are cut short halfway, and what is left of them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import EngineError, HostError, NoSpaceError
from atoll.host import Memory, remove_tree
from atoll.supervisor.lifecycle.warm_machine import Warm
from atoll.supervisor.settings import Settings
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import OperationRow, SnapshotRow
from atoll.supervisor.state.tasks import Tasks
from tests.unit.supervisor.world import DIGEST, World, in_world, in_world_of


@in_world
async def test_a_killed_sandbox_that_cannot_be_erased_never_comes_back(world: World) -> None:
    made = await world.create()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await world.system.registry.change(sandbox, durable=True, state="killed", name=None)
    await world.crash()

    def refuse(path: Path) -> None:
        if path.parent == world.home.sandboxes:
            raise HostError(f"{path} is not removed: it is still mounted")
        remove_tree(path)

    with patch("atoll.supervisor.storage.trash.remove_tree", refuse):
        await world.start()
    assert (await world.ask("GET", "/v1/sandboxes")).json["sandboxes"] == []
    await world.crash()
    await world.start()
    assert world.system.registry.all() == []
    assert list(world.home.sandboxes.iterdir()) == []


@in_world
async def test_the_leftovers_of_a_cut_short_kill_go_before_its_directory(world: World) -> None:
    made = await world.create()
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await world.system.registry.change(sandbox, durable=True, state="killed", name=None)
    await world.crash()
    order: list[str] = []

    async def collect(_: object) -> list[object]:
        order.append("collected" if (world.home.sandboxes / made["sandbox_id"]).exists() else "too late")
        return []

    with patch("atoll.supervisor.recovery.gc.LeftoverCollector.collect", collect):
        await world.start()
    assert order == ["collected"]
    assert list(world.home.sandboxes.iterdir()) == []


@pytest.mark.parametrize("action", ["kill", "rollback"])
def test_a_link_that_waited_over_a_restart_is_let_go(action: str) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        assert (await world.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
        await world.asleep(made)
        (waiting,) = world.links.open
        await world.crash()
        await world.start()
        if action == "kill":
            assert (await world.ask("DELETE", one)).status < 300
        else:
            assert (await world.ask("POST", f"{one}/rollback", {"snapshot": "s1"})).status == 200
        assert waiting not in world.links.open
        assert len(world.links.open) == (0 if action == "kill" else 1)

    in_world(lived)()


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


@in_world
async def test_a_wake_that_fails_on_a_new_link_resets_connections_the_next_time(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.asleep(made)
    world.system.registry.sandbox(made["sandbox_id"]).link = None
    world.links.open.clear()
    world.host.fail_next("start", EngineError("not now"))
    assert (await world.ask("POST", f"{one}/wake")).status == 500
    assert world.links.open == {}
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"
    (link,) = world.links.open.values()
    assert "reset 1" in link.calls


@in_world
async def test_a_memory_that_a_failed_suspend_left_does_not_cost_the_next_one(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    stale = world.home.sandboxes / made["sandbox_id"] / "checkpoint"
    stale.mkdir()
    (stale / "pages").write_text("old")
    world.machine_of(made["sandbox_id"]).memory = "remembered"
    assert (await world.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
    await world.ask("POST", f"{one}/wake")
    assert world.machine_of(made["sandbox_id"]).memory == "remembered"


@in_world
async def test_a_snapshot_that_is_being_removed_is_no_source_any_more(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await world.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
    begun, go_on = asyncio.Event(), asyncio.Event()
    delete = world.system.database.delete

    async def slowly(*rows: Any, **how: Any) -> None:
        if isinstance(rows[0], SnapshotRow):
            begun.set()
            await go_on.wait()
        await delete(*rows, **how)

    with patch.object(world.system.database, "delete", slowly):
        removing = asyncio.create_task(world.ask("DELETE", "/v1/snapshots/s1"))
        await begun.wait()
        refused = await world.ask("POST", "/v1/sandboxes", {"from_snapshot": "s1"})
        go_on.set()
        assert (await removing).status < 300
    assert refused.status == 404
    await world.until(lambda: list(world.home.snapshots.iterdir()) == [])
    assert len(world.host.machines) == 1


@in_world
async def test_a_snapshot_that_a_waiting_rollback_wants_is_not_removed(world: World) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    assert (await world.ask("POST", f"{one}/snapshots", {"name": "s1"})).status == 200
    registry = world.system.registry
    sandbox = registry.sandbox(made["sandbox_id"])
    async with sandbox.lock:
        rolling = asyncio.create_task(world.ask("POST", f"{one}/rollback", {"snapshot": "s1"}))
        await world.until(lambda: world.system.tasks.busy)
        await world.until(lambda: registry.pins.has(registry.snapshot("s1").snapshot_id))
        assert (await world.ask("DELETE", "/v1/snapshots/s1")).status == 409
    assert (await rolling).status == 200


@in_world_of(Settings(pool_size=1))
async def test_a_create_that_fails_for_want_of_disk_keeps_no_warm_machine(world: World) -> None:
    await world.create()
    await world.until(lambda: world.system.pool.ids())
    (ready,) = world.system.pool.ids()
    with patch.object(world.system.registry, "add", side_effect=OSError(28, "No space left on device")):
        assert (await world.ask("POST", "/v1/sandboxes", {"name": "two"})).status >= 400
    await world.until(lambda: world.system.pool.ids())
    assert not (world.home.sandboxes / ready).exists()
    assert len([machine for machine in world.host.machines.values() if machine.alive]) == 2
    assert len(world.links.open) == 2


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


@in_world_of(Settings(pool_size=1))
async def test_the_pool_keeps_machines_only_for_the_images_that_were_used_last(world: World) -> None:
    pool = world.system.pool
    digests = [f"sha256-{number:064}" for number in range(6)]
    for digest in digests:
        pool.refill(digest)
    pool.refill(digests[2])
    await world.until(lambda: len(pool.ids()) == 4 and not world.system.tasks.busy)
    assert set(pool._warm) == set(digests[2:])
    pool.refill("sha256-" + "9" * 64)
    await world.until(lambda: len(pool.ids()) == 4 and digests[3] not in pool._warm)
    await world.until(lambda: len(list(world.home.sandboxes.iterdir())) == len(world.links.open) == 4)


@in_world_of(Settings(pool_size=1))
async def test_the_pool_is_not_filled_while_memory_is_short(world: World) -> None:
    pool = world.system.pool
    with patch.object(pool, "_memory", return_value=Memory(8 << 30, 1 << 28)):
        await world.create()
        await world.until(lambda: not pool._making)
        assert not pool.ids()
    await world.create()
    await world.until(pool.ids)


@in_world_of(Settings(pool_size=1))
async def test_an_image_that_cannot_be_read_costs_the_pool_no_link(world: World) -> None:
    pool = world.system.pool
    with patch.object(world.images, "get", side_effect=PermissionError("not for you")):
        pool.refill(DIGEST)
        await world.until(lambda: not pool._making)
    assert world.links.open == {}
    assert list(world.home.sandboxes.iterdir()) == []
    pool.refill(DIGEST)
    await world.until(pool.ids)


@in_world_of(Settings(pool_size=1))
async def test_the_pool_can_be_emptied_while_another_image_gets_its_first_machine(world: World) -> None:
    await world.create()
    pool = world.system.pool
    await world.until(pool.ids)
    discard = pool.discard

    async def another_image_meanwhile(warm: Warm) -> None:
        pool._warm.setdefault("another", [])
        await discard(warm)

    with patch.object(pool, "discard", another_image_meanwhile):
        await pool.drain()
    assert pool.ids() == set()
    assert len([machine for machine in world.host.machines.values() if machine.alive]) == 1


@in_world
async def test_a_machine_that_cannot_be_thawed_after_a_restart_does_not_run_beside_the_next(
    world: World,
) -> None:
    made = await world.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    running = world.system.registry.sandbox(made["sandbox_id"]).running
    assert running is not None
    await running.freeze()
    await world.crash()
    world.agents.deaf = True
    for _ in range(3):
        world.host.fail_next("resume", EngineError("it does not answer"))
    await world.start()
    world.agents.deaf = False
    assert (await world.ask("GET", one)).json["state"] == "crashed"
    assert not any(machine.alive for machine in world.host.machines.values())
    assert world.links.open == {}
    assert (await world.ask("POST", f"{one}/wake")).json["state"] == "running"


@pytest.mark.parametrize("asked", [("POST", "/wake", 200), ("POST", "/fork", 200), ("DELETE", "", 204)])
def test_a_suspend_is_answered_before_its_machine_has_ended_and_what_comes_next_waits_for_that(
    asked: tuple[str, str, int],
) -> None:
    async def lived(world: World) -> None:
        made = await world.create()
        one = f"/v1/sandboxes/{made['sandbox_id']}"
        machine, sandbox = (
            world.machine_of(made["sandbox_id"]),
            world.system.registry.sandbox(made["sandbox_id"]),
        )
        machine.memory = "remembered"
        (link,) = world.links.open.values()
        ended = world.host.hold("kill")
        assert (await world.ask("POST", f"{one}/suspend")).json["state"] == "suspended"
        assert machine.paused
        assert link.calls[-1] == "end_dialled"
        assert (await world.ask("GET", "/v1/leftovers")).json == []
        coming = asyncio.create_task(world.ask(asked[0], f"{one}{asked[1]}"))
        await world.until(lambda: sandbox.lock._waiters)
        assert list(world.host.machines) == [machine.machine_id]
        assert (await world.ask("GET", one)).json["state"] == "suspended"
        ended.set()
        assert (await coming).status == asked[2]
        assert machine.machine_id not in world.host.machines
        assert {one.memory for one in world.host.machines.values()} <= {"remembered"}
        await world.until(lambda: not world.system.tasks.busy)
        assert await world.system.database.all(OperationRow) == []

    in_world(lived)()


@in_world
async def test_a_machine_that_does_not_end_after_a_suspend_is_ended_by_the_next_use(world: World) -> None:
    made = await world.create()
    world.host.fail_next("kill", EngineError("it is stuck in the kernel"))
    await world.asleep(made)
    assert len(world.host.machines) == 1
    assert (await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")).json["state"] == "running"
    assert list(world.host.machines) == [world.machine_of(made["sandbox_id"]).machine_id]


@in_world
async def test_a_supervisor_that_stops_waits_for_the_ends_of_what_sleeps(world: World) -> None:
    made = await world.create()
    ended = world.host.hold("kill")
    await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/suspend")
    closing = asyncio.create_task(world.system.tasks.finish(60))
    asyncio.get_running_loop().call_soon(ended.set)
    await closing
    assert world.host.machines == {}
    assert (world.home.sandboxes / made["sandbox_id"] / "checkpoint" / "seal.json").exists()
