"""A disk that is nearly full: what can be had again goes, idle sandboxes sleep, and nothing else is lost."""

from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.host import DiskUsage
from atoll.supervisor.doctor import space_finding
from atoll.supervisor.monitors.disk_pressure import DiskPressure
from atoll.supervisor.monitors.idle_sandboxes import IdleSandboxes, is_idle
from atoll.supervisor.settings import read_settings
from atoll.types import StatsSample
from tests.unit.supervisor.harness import Harness, with_harness

MIB = 1 << 20


def sample(at: float, percent: float | None = 0.0, memory_bytes: int | None = MIB) -> StatsSample:
    return StatsSample(
        at=at,
        vcpus=1.0,
        cpu_percent=percent,
        memory_bytes=memory_bytes,
        memory_limit_bytes=None,
        disk_bytes=0,
        disk_limit_bytes=None,
    )


def quiet(now_s: float) -> list[StatsSample]:
    return [sample(now_s - back_s) for back_s in (50, 30, 10, 0)]


def test_idle_is_what_used_next_to_nothing_for_a_minute() -> None:
    assert is_idle(quiet(1000.0), 1000.0)
    assert not is_idle([*quiet(1000.0)[:-1], sample(1000.0, 5.0)], 1000.0)
    assert is_idle([sample(900.0, 99.0), *quiet(1000.0)], 1000.0)


def test_of_what_is_hardly_known_nobody_says_that_it_is_idle() -> None:
    assert not is_idle([], 1000.0)
    assert not is_idle([sample(999.0), sample(999.5), sample(1000.0)], 1000.0)
    assert not is_idle([sample(at, None) for at in (950.0, 970.0, 1000.0)], 1000.0)


class Disk:
    """A disk of 100 MiB, and what was done to free space on it."""

    def __init__(self, harness: Harness, free_mib: float) -> None:
        self.free_mib = free_mib
        self.done: list[str] = []
        self.frees: dict[str, float] = {}
        system = harness.system
        self.pressure = DiskPressure(
            inventory=system.inventory,
            idle=IdleSandboxes(
                inventory=system.inventory,
                history=system.history,
                suspends=system.suspends,
                tasks=system.tasks,
                tell=lambda sandbox_id, line: self.done.append(line),
                unix_s=lambda: harness.now_s,
            ),
            tasks=system.tasks,
            disk=lambda: DiskUsage(100 * MIB, int(self.free_mib * MIB)),
            low_percent=5.0,
            steps=[(name, self._step(name)) for name in ("pool", "steps", "images")],
            tell=lambda sandbox_id, line: self.done.append(line),
            unix_s=lambda: harness.now_s,
        )

    def _step(self, name: str):  # type: ignore[no-untyped-def]
        async def step() -> None:
            self.done.append(name)
            self.free_mib += self.frees.get(name, 0)

        return step


@with_harness
async def test_with_enough_room_nothing_happens(harness: Harness) -> None:
    await harness.create()
    disk = Disk(harness, 5)
    await disk.pressure.look()
    assert disk.done == []


@with_harness
async def test_it_is_said_once_and_steps_are_taken_until_there_is_room(harness: Harness) -> None:
    await harness.create()
    disk = Disk(harness, 4)
    disk.frees = {"steps": 10}
    await disk.pressure.look()
    await disk.pressure.look()
    assert disk.done == ["the host's disk is nearly full", "pool", "steps"]


@with_harness
async def test_what_did_not_help_is_tried_again_only_after_a_while(harness: Harness) -> None:
    disk = Disk(harness, 4)
    await disk.pressure.look()
    await disk.pressure.look()
    assert disk.done == ["pool", "steps", "images"]
    harness.now_s += 601
    await disk.pressure.look()
    assert disk.done == ["pool", "steps", "images"] * 2


@with_harness
async def test_only_who_is_idle_and_wakes_by_itself_is_put_to_sleep(harness: Harness) -> None:
    idle, busy, by_hand, talking, big = [
        await harness.create(lifecycle={"auto_resume": auto_resume})
        for auto_resume in (True, True, False, True, True)
    ]
    disk = Disk(harness, 4)
    await disk.pressure.look()
    harness.now_s += 120
    now_s = harness.now_s
    kept = {
        idle["sandbox_id"]: quiet(now_s),
        busy["sandbox_id"]: [sample(now_s - back_s, 50.0) for back_s in (50, 30, 0)],
        by_hand["sandbox_id"]: quiet(now_s),
        talking["sandbox_id"]: quiet(now_s),
        big["sandbox_id"]: [sample(now_s - back_s, 0.0, 2 * MIB) for back_s in (50, 30, 0)],
    }
    history = harness.system.history
    for sandbox_id, samples in kept.items():
        past = history._pasts.get(sandbox_id)
        if past is None:
            await history._sample(
                harness.system.inventory.sandbox(sandbox_id),
                harness.system.inventory.sandbox(sandbox_id).running,  # type: ignore[arg-type]
            )
            past = history._pasts[sandbox_id]
        past.samples.clear()
        past.samples.extend(samples)
    running = harness.system.inventory.sandbox(talking["sandbox_id"]).running
    assert running is not None
    running.link.received = 1000  # type: ignore[attr-defined]
    await disk.pressure.look()
    states = [
        harness.system.inventory.sandbox(one["sandbox_id"]).row.state
        for one in (idle, busy, by_hand, talking, big)
    ]
    assert states == ["suspended", "running", "running", "running", "running"]
    assert (await harness.ask("POST", f"/v1/sandboxes/{idle['sandbox_id']}/wake")).status == 200


@with_harness
async def test_the_supervisor_s_own_steps_lose_nothing_that_has_a_name(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.ask("POST", f"{one}/snapshots", {"name": "kept"})
    for _, free in harness.system.disk_pressure.steps:
        await free()
    assert [row.name for row in harness.system.inventory.snapshots()] == ["kept"]
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "running"


def test_doctor_says_when_too_little_is_free() -> None:
    assert space_finding(DiskUsage(100, 5), 5.0).level == "ok"
    found = space_finding(DiskUsage(100, 4), 5.0)
    assert (found.level, "atoll du" in str(found.remedy)) == ("warning", True)


def test_the_setting_is_a_percentage() -> None:
    assert read_settings({"ATOLL_DISK_LOW_PERCENT": "7.5"}).disk_low_percent == 7.5
    for wrong in ("-1", "51", "x", "nan"):
        with pytest.raises(InvalidSpecError):
            read_settings({"ATOLL_DISK_LOW_PERCENT": wrong})


@with_harness
async def test_of_the_snapshots_that_were_made_by_themselves_the_newest_stays(harness: Harness) -> None:
    made = await harness.create(lifecycle={"snapshot_every_s": 300})
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    automatic = harness.system.automatic_snapshots
    await automatic.look()
    for _ in range(3):
        harness.boot_s += 301
        machine = harness.machine_of(sandbox.sandbox_id)
        machine.cpu_s = (machine.cpu_s or 0.0) + 300
        await automatic.look()
        await harness.until(lambda: not harness.system.tasks.busy)
    await harness.ask("POST", f"/v1/sandboxes/{sandbox.sandbox_id}/snapshots", {"name": "mine"})
    before = harness.system.inventory.snapshots()
    assert [row.automatic for row in before] == [True, True, True, False]
    await automatic.tidy(newest_only=True)
    after = [row.snapshot_id for row in harness.system.inventory.snapshots()]
    assert after == [row.snapshot_id for row in before[2:]]
