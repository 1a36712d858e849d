"""A host that runs short of memory: who gives way, and what waits or is refused."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from atoll.errors import AgentError, InvalidSpecError
from atoll.supervisor.doctor import memory_finding
from atoll.supervisor.lifecycle.memory_admission import BOOT_BYTES, checkpoint_bytes
from atoll.supervisor.machines.host_memory import HostMemoryGauge, kept_free
from atoll.supervisor.monitors.giving_way import GivingWay, Victim
from atoll.supervisor.monitors.host_memory import pause_s
from atoll.supervisor.settings import Settings, read_settings
from atoll.types import HostMemory
from tests.unit.supervisor.harness import Harness, with_harness_of

MIB = 1 << 20
GIB = 1 << 30


def left(mib: float, kept_mib: int = 2000) -> HostMemory:
    """A host that has so much left beyond what stays free."""
    return HostMemory(
        total_bytes=20_000 * MIB, available_bytes=int((kept_mib + mib) * MIB), kept_free_bytes=kept_mib * MIB
    )


class Guests:
    """Guests that grow as the test says, and what gives way when the host is short of memory."""

    def __init__(self, **sizes_mib: int) -> None:
        self.way = GivingWay()
        self.now_s = 100.0
        self.sizes_mib = sizes_mib
        self.pass_s(1.0)

    def pass_s(self, seconds: float, **grown_mib: int) -> None:
        """Let time pass in steps in which guests grow evenly."""
        steps = round(seconds / 0.25)
        for _ in range(steps):
            self.now_s += 0.25
            for name, mib in grown_mib.items():
                self.sizes_mib[name] += mib // steps
            self.way.read({name: mib * MIB for name, mib in self.sizes_mib.items()}, self.now_s)

    def next(self, left_mib: float) -> Victim | None:
        return self.way.next(left(left_mib), self.now_s)


def test_a_tenth_stays_free_and_at_least_a_gib_but_at_most_a_quarter() -> None:
    assert kept_free(24 * GIB, None) == int(2.4 * GIB)
    assert kept_free(8 * GIB, None) == GIB
    assert kept_free(2 * GIB, None) == GIB // 2
    assert kept_free(24 * GIB, 300) == 300 * MIB
    assert kept_free(24 * GIB, 0) == 0


def test_the_memory_is_read_from_one_file(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  4194304 kB\nMemFree:  1 kB\nMemAvailable:  2097152 kB\n")
    memory = HostMemoryGauge(None, meminfo).look()
    assert memory.kept_free_bytes == memory.total_bytes // 4 <= GIB
    assert memory.spare_bytes == memory.available_bytes - memory.kept_free_bytes


def test_the_less_is_left_the_sooner_it_is_looked_at_again() -> None:
    assert pause_s(left(16_000)) == 1.0
    assert pause_s(left(1024)) == 0.25
    assert pause_s(left(10)) == pause_s(left(-500)) == 0.05


def test_what_stays_free_can_be_set() -> None:
    assert read_settings({}).host_memory_free_mib is None
    assert read_settings({"ATOLL_HOST_MEMORY_FREE_MIB": "0"}).host_memory_free_mib == 0
    with pytest.raises(InvalidSpecError, match="ATOLL_HOST_MEMORY_FREE_MIB is -1"):
        read_settings({"ATOLL_HOST_MEMORY_FREE_MIB": "-1"})


def test_doctor_warns_when_sandboxes_give_way() -> None:
    assert memory_finding(left(1)).level == "ok"
    assert memory_finding(left(-1)).level == "warning"


def test_with_enough_left_nobody_gives_way() -> None:
    guests = Guests(a=100)
    guests.pass_s(2, a=5000)
    assert guests.next(1) is None


def test_the_fastest_grower_goes_first_whatever_its_size() -> None:
    guests = Guests(big=9000, slow=500, fast=100)
    guests.pass_s(2, slow=100, fast=400)
    assert guests.next(-1) == Victim("fast", "program")


def test_memory_that_a_kill_gives_back_is_waited_for_but_not_for_ever() -> None:
    guests = Guests(a=100, b=100)
    guests.pass_s(2, a=400, b=200)
    assert guests.next(-100) == Victim("a", "program")
    guests.pass_s(0.5, b=50)
    assert guests.next(-150) is None
    guests.pass_s(1.5, b=50)
    assert guests.next(-50) is None  # it comes back just now
    guests.pass_s(0.25, b=50)
    assert guests.next(-100) == Victim("b", "program")


def test_when_little_is_left_the_next_one_comes_sooner() -> None:
    guests = Guests(a=100, b=100)
    guests.pass_s(2, a=400, b=200)
    guests.next(-1100)
    guests.pass_s(0.25, b=50)
    assert guests.next(-1150) == Victim("b", "program")


def test_a_guest_that_grows_again_goes_as_a_whole() -> None:
    guests = Guests(a=100)
    guests.pass_s(2, a=400)
    assert guests.next(-1) == Victim("a", "program")
    guests.pass_s(2, a=400)
    assert guests.next(-1) == Victim("a", "guest")


def test_a_guest_without_a_program_to_kill_goes_at_once() -> None:
    guests = Guests(a=100)
    guests.pass_s(2, a=400)
    assert guests.next(-1) == Victim("a", "program")
    guests.way.in_vain()
    assert guests.next(-1) == Victim("a", "guest")


def test_a_guest_that_shrinks_grows_no_more() -> None:
    guests = Guests(a=100)
    guests.pass_s(2, a=4000)
    guests.pass_s(0.25, a=-100)
    assert guests.next(-1) is None


def test_who_does_not_grow_is_spared_until_the_memory_is_critical_and_then_the_biggest_goes() -> None:
    guests = Guests(small=100, big=3000)
    assert guests.next(-900) is None
    assert guests.next(-1100) == Victim("big", "program")
    guests.pass_s(0.5)
    assert guests.next(-1100) == Victim("big", "guest")


def test_what_a_checkpoint_needs_is_what_its_files_hold(tmp_path: Path) -> None:
    (tmp_path / "pages").write_bytes(b"x" * 100 * MIB)
    assert 100 * MIB <= checkpoint_bytes(tmp_path) < 101 * MIB
    assert checkpoint_bytes(tmp_path / "none") == BOOT_BYTES


class Host:
    """The pretended memory of a harness's host."""

    def __init__(self, harness: Harness) -> None:
        self.path = Path(harness.settings.meminfo)
        self.harness = harness

    def leave(self, mib: int) -> None:
        self.path.write_text(f"MemTotal: 4194304 kB\nMemAvailable: {(1024 + mib) * 1024} kB\n")


def with_host(test: Callable[[Harness, Host], Awaitable[None]]) -> Callable[[Path], None]:
    """Run a test in a harness whose host has 4 GiB of memory, of which 1 GiB is to stay free."""

    async def run(harness: Harness) -> None:
        host = Host(harness)
        admission = harness.system._steps.memory_admission
        admission.patience_s = 0.3
        admission._refused_s = -1.0
        await test(harness, host)

    def begin(tmp_path: Path) -> None:
        path = tmp_path / "meminfo"
        path.write_text("MemTotal: 4194304 kB\nMemAvailable: 4194304 kB\n")
        settings = Settings(pool_size=0, meminfo=str(path), host_memory_free_mib=1024)
        with_harness_of(settings)(run)()

    begin.__name__, begin.__qualname__ = test.__name__, test.__qualname__
    return begin


@with_host
async def test_what_does_not_fit_is_refused_with_what_is_used_by_whom(harness: Harness, host: Host) -> None:
    made = await harness.create(name="first")
    harness.machine_of(made["sandbox_id"]).memory_used_bytes = 300 * MIB
    host.leave(63)
    refused = (await harness.ask("POST", "/v1/sandboxes", {})).json
    assert (refused["code"], refused["retryable"]) == ("host_memory", True)
    assert "1,087 of 4,096 MiB are available, and 1,024 MiB stay free" in refused["message"]
    assert "1 sandboxes use 300 MiB, first 300 MiB" in refused["message"]
    host.leave(64)
    await harness.create()


@with_host
async def test_one_that_does_not_fit_waits_for_its_turn(harness: Harness, host: Host) -> None:
    host.leave(0)
    asked = asyncio.create_task(harness.create())
    await harness.until(lambda: harness.system._steps.memory_admission.wanted_bytes)
    host.leave(500)
    await asked


@with_host
async def test_a_sleeping_one_wakes_only_if_its_memory_fits(harness: Harness, host: Host) -> None:
    made = await harness.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}"
    await harness.asleep(made)
    pages = harness.system.paths.checkpoint(made["sandbox_id"]) / "pages"
    pages.write_bytes(b"x" * 70 * MIB)
    host.leave(69)
    assert (await harness.ask("POST", f"{path}/wake")).status == 503
    assert harness.system.inventory.sandbox(made["sandbox_id"]).row.state == "suspended"
    host.leave(90)
    harness.system._steps.memory_admission._refused_s = -1.0
    assert (await harness.ask("POST", f"{path}/wake")).status == 200


@with_host
async def test_a_grower_s_program_is_killed_by_its_agent_and_then_the_guest(
    harness: Harness, host: Host
) -> None:
    grows, holds = [await harness.create() for _ in range(2)]
    machine = harness.machine_of(grows["sandbox_id"])
    harness.machine_of(holds["sandbox_id"]).memory_used_bytes = 900 * MIB
    machine.memory_used_bytes = 100 * MIB
    host.leave(500)
    await harness.until(lambda: harness.system.host_memory._way._past)
    machine.memory_used_bytes = 400 * MIB
    host.leave(-50)
    await harness.until(lambda: harness.agents.freed)
    machine.memory_used_bytes = 700 * MIB
    grown = harness.system.inventory.sandbox(grows["sandbox_id"])
    await harness.until(lambda: grown.row.state == "crashed")
    assert "the host ran short of memory" in (grown.row.reason or "")
    assert harness.system.inventory.sandbox(holds["sandbox_id"]).row.state == "running"
    assert harness.agents.freed == 1


@with_host
async def test_a_guest_whose_agent_does_not_answer_goes_as_a_whole(harness: Harness, host: Host) -> None:
    made = await harness.create()
    harness.agents.free_failure = AgentError("it does not answer")
    host.leave(-600)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.state == "crashed")


@with_host
async def test_a_paused_one_is_put_to_sleep_for_what_is_to_start(harness: Harness, host: Host) -> None:
    made = await harness.create()
    await harness.ask("POST", f"/v1/sandboxes/{made['sandbox_id']}/pause")
    host.leave(200)
    sandbox = harness.system.inventory.sandbox(made["sandbox_id"])
    await harness.until(lambda: sandbox.row.state == "suspended")
    assert (await harness.ask("GET", "/v1/memory")).json["kept_free_bytes"] == 1024 * MIB


@with_host
async def test_a_guest_that_has_shrunk_since_it_was_read_is_not_ended(harness: Harness, host: Host) -> None:
    sandbox_id = (await harness.create())["sandbox_id"]
    row = harness.system.inventory.sandbox(sandbox_id)
    watch, machine = harness.system.host_memory, harness.machine_of(sandbox_id)
    watch._way.read({sandbox_id: 400 * MIB}, 0.0)
    machine.memory_used_bytes = 3 * MIB
    watch._kill(Victim(sandbox_id, "guest"))
    assert row.running is not None and row.running.reason is None
    machine.memory_used_bytes = 400 * MIB
    watch._kill(Victim(sandbox_id, "guest"))
    await harness.until(lambda: row.row.state == "crashed")
    assert "held 400 MiB" in (row.row.reason or "")
