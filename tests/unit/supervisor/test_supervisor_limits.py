from __future__ import annotations

import asyncio
import os

from atoll.engines import DiskBudget, Prestarting
from atoll.errors import UnsupportedError
from atoll.testing import CAPABILITIES, fake_engine
from tests.unit.supervisor.harness import Harness, with_harness


@with_harness
async def test_changed_limits_reach_machine_link_guest_and_row(harness: Harness) -> None:
    made = await harness.create(limits={"memory_mib": 128})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    wanted = {"memory_mib": 256, "network_mib_s": 2.5, "processes": 99}
    answer = await harness.ask("POST", f"{one}/limits", {"limits": wanted})
    assert (answer.status, answer.json["limits"]) == (200, wanted)
    machine = harness.machine_of(made["sandbox_id"])
    assert (machine.limits.memory_mib, machine.limits.processes) == (256, 99)
    assert machine.limits.open_files is not None
    running = harness.system.inventory.sandbox(made["sandbox_id"]).running
    assert running is not None
    assert running.link.rate_mib_s == 2.5  # type: ignore[attr-defined]
    assert harness.agents.inits[-1].memory_bytes == 256 << 20


@with_harness
async def test_a_memory_limit_that_changed_while_it_was_paused_reaches_the_guest_when_it_goes_on(
    harness: Harness,
) -> None:
    made = await harness.create(limits={"memory_mib": 128})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.ask("POST", f"{one}/pause")
    told = len(harness.agents.inits)
    await harness.ask("POST", f"{one}/limits", {"limits": {"memory_mib": 256}})
    assert len(harness.agents.inits) == told, "it stands still"
    for _ in range(2):
        await harness.ask("POST", f"{one}/wake")
        assert [each.memory_bytes for each in harness.agents.inits[told:]] == [256 << 20]
        await harness.ask("POST", f"{one}/pause")


@with_harness
async def test_limits_that_cannot_be_changed_leave_all_as_it_was(harness: Harness) -> None:
    made = await harness.create(limits={"processes": 50})
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.host.fail_next("limit", UnsupportedError("not while it runs"))
    answer = await harness.ask("POST", f"{one}/limits", {"limits": {"processes": 70}})
    assert answer.json["code"] == "unsupported"
    assert (await harness.ask("GET", one)).json["limits"] == {"processes": 50}
    assert harness.machine_of(made["sandbox_id"]).limits.processes == 50
    refused = await harness.ask("POST", f"{one}/limits", {"limits": {"vcpus": 0.5}})
    assert "only whole processors" in refused.json["message"]
    accepted = await harness.ask("POST", f"{one}/limits", {"limits": {"vcpus": 0.5}, "best_effort": True})
    assert accepted.json["limits"]["vcpus"] == 0.5


@with_harness
async def test_a_sandbox_is_killed_when_its_lifetime_is_over(harness: Harness) -> None:
    made = await harness.create(limits={"lifetime_s": 500})
    other = await harness.create()
    harness.boot_s += 1000
    await harness.until(lambda: len(harness.system.inventory.all()) == 1)
    assert harness.system.inventory.sandbox(other["sandbox_id"]).row.state == "running"
    assert (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).status == 404


@with_harness
async def test_a_guest_that_passes_its_memory_limit_is_ended_and_the_reason_says_so(harness: Harness) -> None:
    made = await harness.create(limits={"memory_mib": 128})
    harness.machine_of(made["sandbox_id"]).memory_used_bytes = 200 << 20
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.state == "crashed")
    assert "memory limit" in (sandbox.row.reason or "")


@with_harness
async def test_the_room_on_a_disk_is_told_at_once_and_again_when_the_guest_asks(harness: Harness) -> None:
    made = await harness.create(limits={"files": 200})
    machine = harness.machine_of(made["sandbox_id"])
    await harness.until(lambda: machine.growth is not None)
    assert machine.growth is not None
    assert machine.growth.files == 200
    upper = harness.system.paths.disk(made["sandbox_id"], "d1") / "upper"
    (upper / "new").touch()
    assert machine.event_fd is not None
    os.eventfd_write(machine.event_fd, 1)
    await harness.until(lambda: machine.growth is not None and machine.growth.files == 199)


@with_harness
async def test_a_sandbox_in_the_middle_of_something_keeps_no_other_alive(harness: Harness) -> None:
    busy = await harness.create(limits={"lifetime_s": 500})
    other = await harness.create(limits={"lifetime_s": 500})
    async with harness.system.inventory.sandbox(busy["sandbox_id"]).lock:
        harness.boot_s += 1000
        await harness.until(
            lambda: [one.sandbox_id for one in harness.system.inventory.all()] == [busy["sandbox_id"]]
        )
    assert other["sandbox_id"] != busy["sandbox_id"]
    await harness.until(lambda: harness.system.inventory.all() == [])


@with_harness
async def test_nothing_watches_a_machine_that_was_ended(harness: Harness) -> None:
    made = await harness.create()
    for _ in range(3):
        await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/suspend")
        await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/wake")
    await harness.until(lambda: _watches() == {"Crashes._following": 1, "DiskMonitor.run": 1})


def _watches() -> dict[str, int]:
    names = [getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks()]
    return {name: names.count(name) for name in ("Crashes._following", "DiskMonitor.run")}


@with_harness
async def test_limits_are_held_by_the_engine_of_each_sandbox_and_not_by_that_of_new_ones(
    harness: Harness,
) -> None:
    """With two engines in one home, of which only the earlier one holds a limit of the disk."""
    disk = {"limits": {"disk_mib": 100}}
    early = f"/v1/sandboxes/{(await harness.create())['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{early}/snapshots", {})).json["snapshot_id"]
    await harness.ask("POST", f"{early}/suspend")
    await harness.aclose()
    harness.engine_name = "plain"
    harness.engine_types["plain"] = fake_engine(CAPABILITIES - {Prestarting, DiskBudget})
    await harness.start()
    assert (await harness.ask("POST", "/v1/sandboxes", disk)).status == 501
    late = f"/v1/sandboxes/{(await harness.create())['sandbox_id']}"
    for path, status, held in ((early, 200, "hard"), (late, 501, "unavailable")):
        assert (await harness.ask("POST", f"{path}/limits", disk)).status == status
        assert (await harness.ask("POST", f"{path}/limits", {**disk, "best_effort": True})).status == 200
        assert (await harness.ask("GET", f"{path}/stats")).json["held"]["disk_mib"] == held
    copy = await harness.create(from_snapshot=snapshot, **disk)
    stats = (await harness.ask("GET", f"/v1/sandboxes/{copy['sandbox_id']}/stats")).json
    assert stats["held"]["disk_mib"] == "hard"
