from __future__ import annotations

import asyncio
import os

from atoll.errors import UnsupportedError
from tests.unit.supervisor.world import World, in_world


@in_world
async def test_changed_limits_reach_machine_link_guest_and_row(world: World) -> None:
    made = await world.create(limits={"memory_mib": 128})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    wanted = {"memory_mib": 256, "network_mib_s": 2.5, "processes": 99}
    answer = await world.ask("POST", f"{one}/limits", {"limits": wanted})
    assert (answer.status, answer.json["limits"]) == (200, wanted)
    machine = world.machine_of(made["sandbox_id"])
    assert (machine.limits.memory_mib, machine.limits.processes) == (256, 99)
    assert machine.limits.open_files is not None
    running = world.system.registry.sandbox(made["sandbox_id"]).running
    assert running is not None
    assert running.link.rate_mib_s == 2.5  # type: ignore[attr-defined]
    assert world.agents.inits[-1].memory_bytes == 256 << 20


@in_world
async def test_a_memory_limit_that_changed_while_it_was_paused_reaches_the_guest_when_it_goes_on(
    world: World,
) -> None:
    made = await world.create(limits={"memory_mib": 128})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await world.ask("POST", f"{one}/pause")
    told = len(world.agents.inits)
    await world.ask("POST", f"{one}/limits", {"limits": {"memory_mib": 256}})
    assert len(world.agents.inits) == told, "it stands still"
    for _ in range(2):
        await world.ask("POST", f"{one}/wake")
        assert [each.memory_bytes for each in world.agents.inits[told:]] == [256 << 20]
        await world.ask("POST", f"{one}/pause")


@in_world
async def test_limits_that_cannot_be_changed_leave_all_as_it_was(world: World) -> None:
    made = await world.create(limits={"processes": 50})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    world.host.fail_next("limit", UnsupportedError("not while it runs"))
    answer = await world.ask("POST", f"{one}/limits", {"limits": {"processes": 70}})
    assert answer.json["code"] == "unsupported"
    assert (await world.ask("GET", one)).json["limits"] == {"processes": 50}
    assert world.machine_of(made["sandbox_id"]).limits.processes == 50
    refused = await world.ask("POST", f"{one}/limits", {"limits": {"vcpus": 0.5}})
    assert "only whole processors" in refused.json["message"]
    accepted = await world.ask("POST", f"{one}/limits", {"limits": {"vcpus": 0.5}, "best_effort": True})
    assert accepted.json["limits"]["vcpus"] == 0.5


@in_world
async def test_a_sandbox_is_killed_when_its_lifetime_is_over(world: World) -> None:
    made = await world.create(limits={"lifetime_s": 500})
    other = await world.create()
    world.boot_s += 1000
    await world.until(lambda: len(world.system.registry.all()) == 1)
    assert world.system.registry.sandbox(other["sandbox_id"]).row.state == "running"
    assert (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).status == 404


@in_world
async def test_a_guest_that_passes_its_memory_limit_is_ended_and_the_reason_says_so(world: World) -> None:
    made = await world.create(limits={"memory_mib": 128})
    world.machine_of(made["sandbox_id"]).memory_used_bytes = 200 << 20
    sandbox = world.system.registry.sandbox(made["sandbox_id"])
    await world.until(lambda: sandbox.row.state == "crashed")
    assert "memory limit" in (sandbox.row.reason or "")


@in_world
async def test_the_room_on_a_disk_is_told_at_once_and_again_when_the_guest_asks(world: World) -> None:
    made = await world.create(limits={"files": 200})
    machine = world.machine_of(made["sandbox_id"])
    await world.until(lambda: machine.growth is not None)
    assert machine.growth is not None
    assert machine.growth.files == 200
    upper = world.system.paths.disk(made["sandbox_id"], "d1") / "upper"
    (upper / "new").touch()
    assert machine.event_fd is not None
    os.eventfd_write(machine.event_fd, 1)
    await world.until(lambda: machine.growth is not None and machine.growth.files == 199)


@in_world
async def test_a_sandbox_in_the_middle_of_something_keeps_no_other_alive(world: World) -> None:
    busy = await world.create(limits={"lifetime_s": 500})
    other = await world.create(limits={"lifetime_s": 500})
    async with world.system.registry.sandbox(busy["sandbox_id"]).lock:
        world.boot_s += 1000
        await world.until(
            lambda: [one.sandbox_id for one in world.system.registry.all()] == [busy["sandbox_id"]]
        )
    assert other["sandbox_id"] != busy["sandbox_id"]
    await world.until(lambda: world.system.registry.all() == [])


@in_world
async def test_nothing_watches_a_machine_that_was_ended(world: World) -> None:
    made = await world.create()
    for _ in range(3):
        await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/suspend")
        await world.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")
    await world.until(lambda: _watches() == {"Crashes._following": 1, "DiskMonitor.run": 1})


def _watches() -> dict[str, int]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return {name: names.count(name) for name in ("Crashes._following", "DiskMonitor.run")}
