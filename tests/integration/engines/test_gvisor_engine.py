"""gVisor is an engine, and what is its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from pathlib import Path
from typing import cast
from unittest.mock import patch

import msgspec
import pytest

from atoll.engines import DiskGrowth, Machine, MachineEndedError, MachinePlan
from atoll.engines.gvisor import machine as machine_module
from atoll.engines.gvisor import prestarted as prestarted_module
from atoll.engines.gvisor.checkpoint_files import reserve
from atoll.engines.gvisor.control import ControlSocket
from atoll.engines.gvisor.machine_paths import MachinePaths
from atoll.engines.gvisor.prestarted import GvisorPrestarted
from atoll.engines.gvisor.processes import _starting, pids_of
from atoll.errors import NoSpaceError
from atoll.testing import PATIENCE_S, EngineConformance, PrestartedConformance, ticks_beyond
from atoll.types import Limits
from tests.integration.engines.workshop import GvisorWorkshop

pytestmark = pytest.mark.twice

# The host's own mount is setuid, and to an ordinary user's namespace its owner is nobody; a copy is not.
LOOK = """
echo caps $(grep CapEff /proc/self/status) > /seen
echo files $(ulimit -n) $(ulimit -Hn) >> /seen
echo tmp $(stat -c %a /tmp) run $(stat -c %a /run) shm $(stat -c %a /dev/shm) >> /seen
mkdir /mnt && cp /usr/bin/mount /run/ && /run/mount -t tmpfs none /mnt && echo mounted >> /seen
head -c 100000000 /dev/zero > /dev/shm/big && echo shared >> /seen
touch /usr/touched 2>/dev/null || echo usr is read-only >> /seen
grep -q lo: /proc/net/dev && echo loopback >> /seen
echo memory $(grep MemTotal /proc/meminfo) >> /seen
echo 0 0 > /ticks
sleep 1000000
"""

# It makes processes until there may be no more, or 60, and then says again and again, where others have the host
# name, whether there may be one.
CROWD = """
sh -c 'n=0; while [ $n -lt 60 ]; do sleep 1000000 & n=$((n+1)); done'
n=0
while :; do
  if sh -c 'sleep 1000000 &'; then echo made $n; else echo refused $n; fi >>/ticks
  n=$((n+1)); sleep 0.02
done
"""

# It fills the disk, and says in a page that is there already whenever there is no more room.
FILL = """
echo filling 0 >/ticks
n=1
while :; do
  head -c 65536 /dev/zero >>/fill || { echo refused $n >>/ticks; n=$((n+1)); sleep 0.1; }
done
"""


@pytest.fixture
def workshop(tmp_path: Path) -> GvisorWorkshop:
    return GvisorWorkshop(tmp_path)


class TestGvisorConformance(EngineConformance):
    """Every test of the base class, on gVisor."""


class TestGvisorPrestarted(PrestartedConformance):
    """Every test of the base class, on gVisor."""


def test_process_1_finds_a_whole_computer(workshop: GvisorWorkshop) -> None:
    async def test() -> None:
        plan = msgspec.structs.replace(workshop.plan("m1"), argv=("/bin/sh", "-c", LOOK))
        machine = await workshop.engine().start(plan)
        await ticks_beyond(workshop, plan, -1)
        seen = (plan.rootfs / "seen").read_text().splitlines()
        await machine.kill()
        capabilities = int(seen[0].split()[-1], 16)
        assert capabilities & 0x3FFFFFFFFF == 0x3FFFFFFFFF
        assert seen[1:] == [
            "files 1024 1048576",
            "tmp 1777 run 755 shm 1777",
            "mounted",
            "shared",
            "usr is read-only",
            "loopback",
            "memory MemTotal: 1048576 kB",
        ]

    workshop.run(test)


def test_limits_hold_from_the_first_moment_of_a_started_and_of_a_restored_guest(
    workshop: GvisorWorkshop,
) -> None:
    async def test() -> None:
        engine = workshop.engine()
        limits = Limits(memory_mib=1024, processes=40)
        plan = msgspec.structs.replace(workshop.plan("m1"), argv=("/bin/sh", "-c", CROWD), limits=limits)
        machine = await engine.start(plan)
        await ticks_beyond(workshop, plan, 2)
        into = workshop.directory()
        await machine.checkpoint(into)
        await machine.kill()
        other = msgspec.structs.replace(
            workshop.plan("m2", like=plan), argv=plan.argv, limits=limits, checkpoint=into
        )
        before = len(workshop.ticks(other))
        restored = await engine.start(other)
        await ticks_beyond(workshop, other, before + 2)
        await restored.kill()
        assert {tick.hostname for tick in workshop.ticks(other)} == {"refused"}

    workshop.run(test)


def test_the_disk_has_its_limit_before_it_was_measured(workshop: GvisorWorkshop) -> None:
    def filling(plan: MachinePlan, disk_mib: int, **more: object) -> MachinePlan:
        limits = msgspec.structs.replace(plan.limits, disk_mib=disk_mib, files=100)
        return msgspec.structs.replace(plan, argv=("/bin/sh", "-c", FILL), limits=limits, **more)

    async def filled(machine: Machine, plan: MachinePlan) -> float:
        """How full it is when it is full, in MiB; the machine's end."""
        ticks = workshop.ticks(plan)
        await ticks_beyond(workshop, plan, ticks[-1].number + 1 if ticks else 1)
        await machine.kill()
        return (plan.rootfs / "fill").stat().st_size / (1 << 20)

    async def test() -> None:
        engine, into = workshop.engine(), workshop.directory()
        plan = filling(workshop.plan("m1"), 2)
        machine = await engine.start(plan)
        await ticks_beyond(workshop, plan, 2)
        # Where what is there is known, other limits are held at once.
        await machine.mark_disk()
        await machine.limit_growth(DiskGrowth(size_bytes=0, files=90))
        await machine.limit(msgspec.structs.replace(plan.limits, disk_mib=3))
        await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number + 1)
        await machine.checkpoint(into)
        assert 2.9 < await filled(machine, plan) <= 3

        restored = filling(workshop.plan("m2", like=plan), 4, checkpoint=into)
        assert 3.9 < await filled(await engine.start(restored), restored) <= 4
        late = filling(workshop.plan("m3", like=plan), 3, checkpoint=into)
        prestarted_plan = workshop.prestarted_plan("m4", late)
        late = msgspec.structs.replace(late, machine_id="m4", state_dir=prestarted_plan.state_dir)
        machine = await cast(GvisorPrestarted, await engine.prestart(prestarted_plan)).restore(late, None)
        assert 2.9 < await filled(machine, late) <= 3

        growth = DiskGrowth(size_bytes=1 << 20, files=90)
        used = filling(workshop.plan("m5"), 2, growth=growth)
        assert 0.9 < await filled(await engine.start(used), used) <= 1

    workshop.run(test)


@pytest.mark.parametrize("victim", ["sentry_pid", "gofer_pid"])
def test_a_machine_whose_process_is_killed_says_so_and_is_cleaned_up(
    workshop: GvisorWorkshop, victim: str
) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        before = workshop.ledger()
        engine = workshop.engine()
        machine = await engine.start(plan)
        waiting = [asyncio.ensure_future(machine.wait()) for _ in range(3)]
        await ticks_beyond(workshop, plan, 1)
        os.kill(msgspec.json.decode(machine.record())[victim], signal.SIGKILL)
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(*waiting)
        assert await engine.adopt(machine.record()) is None
        assert workshop.ledger() == before
        await machine.kill()

    workshop.run(test)


def test_a_guest_that_was_killed_while_it_stood_still_ends_as_soon_as_it_goes_on(
    workshop: GvisorWorkshop,
) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        before = workshop.ledger()
        engine = workshop.engine()
        machine = await engine.start(plan)
        await ticks_beyond(workshop, plan, 1)
        await machine.pause()
        control = ControlSocket(MachinePaths(plan.state_dir).control_socket("m1"))
        await control.call("containerManager.Signal", {"CID": "m1", "Signo": signal.SIGKILL})
        into = workshop.directory()
        await machine.checkpoint(into, durable=True)
        await machine.kill()
        for number in range(12):  # at one moment or another of its start
            again = workshop.plan(f"again{number}", like=plan)
            again = msgspec.structs.replace(again, checkpoint=into)
            try:
                machine = await engine.start(again)
            except MachineEndedError:
                continue
            async with asyncio.timeout(PATIENCE_S):
                await machine.wait()
            await machine.kill()
        assert workshop.ledger() == before

    workshop.run(test)


@pytest.mark.parametrize("durable", [True, False])
def test_a_full_disk_fails_a_checkpoint_and_the_machine_goes_on(
    workshop: GvisorWorkshop, durable: bool
) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        machine = await workshop.engine().start(plan)
        await ticks_beyond(workshop, plan, 1)
        small = workshop.directory()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "none", small], check=True)  # noqa: ASYNC221
        with pytest.raises(NoSpaceError):
            await machine.checkpoint(small, durable=durable)
        await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
        await machine.checkpoint(workshop.directory(), durable=durable)
        await machine.kill()

    workshop.run(test)


def test_a_full_disk_fails_what_of_a_checkpoint_is_written_late_and_the_next_one_whole(
    workshop: GvisorWorkshop,
) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        shell, option, count = plan.argv
        much = f"much=$(head -c 4000000 /dev/zero | tr '\\0' x); {count}"
        plan = msgspec.structs.replace(plan, argv=(shell, option, much))
        machine = await workshop.engine().start(plan)
        await ticks_beyond(workshop, plan, 1)
        small, into = workshop.directory(), workshop.directory()
        # Room for the state and what is shared, not for the private memory of the guest.
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", small], check=True)  # noqa: ASYNC221
        with pytest.raises(NoSpaceError):
            await machine.checkpoint_late(small)
            await machine.written()
        await ticks_beyond(workshop, plan, workshop.ticks(plan)[-1].number)
        for late in (False, True):
            await (machine.checkpoint_late(into) if late else machine.checkpoint(workshop.directory()))
            await machine.written()
        await machine.kill()

    workshop.run(test)


def test_a_checkpoint_in_memory_is_no_memory_of_its_guest(workshop: GvisorWorkshop) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        shell, option, count = plan.argv
        much = f"much=$(head -c 16000000 /dev/urandom | base64 -w 0); {count}"
        plan = msgspec.structs.replace(plan, argv=(shell, option, much))
        machine = await workshop.engine().start(plan)
        await ticks_beyond(workshop, plan, 1)
        small, room, into = workshop.directory(), workshop.directory(), workshop.directory()
        for directory, size in ((small, "1m"), (room, "1g")):
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", directory], check=True)  # noqa: ASYNC221
        with pytest.raises(NoSpaceError):
            await machine.prepare(into, pages=small)
        # Nothing of what failed is met by the next one.
        plain = workshop.directory()
        await machine.checkpoint_late(plain)
        await machine.written()
        assert (plain / "pages.img").stat().st_size > 20 << 20
        used = (await machine.stats()).memory_bytes
        await machine.prepare(into, pages=room)
        await machine.checkpoint_late(into)
        assert not await machine.written(restorable=True)
        early_plan = msgspec.structs.replace(
            workshop.plan("m2", like=plan),
            argv=plan.argv,
            checkpoint=into,
            read_ahead=False,
            being_written=True,
        )
        early = await workshop.engine().start(early_plan)
        assert await machine.written()
        pages = (into / "pages.img").stat()
        assert 20 << 20 < pages.st_size <= pages.st_blocks * 512 < pages.st_size + (3 << 20)
        grown = (await machine.stats()).memory_bytes
        assert used is not None
        assert grown is not None
        assert grown - used < 8 << 20
        copy_plan = msgspec.structs.replace(workshop.plan("m3", like=plan), argv=plan.argv, checkpoint=into)
        copy = await workshop.engine().start(copy_plan)
        for one, its_plan in ((early, early_plan), (copy, copy_plan)):
            await ticks_beyond(workshop, its_plan, workshop.ticks(its_plan)[-1].number)
            # What is left of its memory is read: what was waited for is the same as what was there.
            again = workshop.directory()
            await one.checkpoint(again)
            await one.kill()
            read = (again / "pages.img").stat().st_size
            assert abs(read - pages.st_size) < 4 << 20
        await machine.kill()

    workshop.run(test)


def test_a_copy_waits_for_memory_that_outgrows_the_room_taken_for_it(workshop: GvisorWorkshop) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        shell, option, count = plan.argv
        much = f"much=$(head -c 64000000 /dev/urandom | base64 -w 0); {count}"
        plan = msgspec.structs.replace(plan, argv=(shell, option, much))
        machine = await workshop.engine().start(plan)
        await ticks_beyond(workshop, plan, 1)
        writer = msgspec.json.decode(machine.record())["sentry_pid"]
        again = workshop.directory()
        for _ in range(10):
            room, into = workshop.directory(), workshop.directory()
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1g", "none", room], check=True)  # noqa: ASYNC221
            with patch.object(machine_module, "reserve", lambda path, _: reserve(path, 1 << 20)):
                await machine.prepare(into, pages=room)
            await machine.checkpoint_late(into)
            assert not await machine.written(restorable=True)
            os.kill(writer, signal.SIGSTOP)
            there = (into / "pages.img").stat().st_size
            if there < 80_000_000:
                break
            # On a busy host all may be written before it is stopped: then nothing is waited for.
            os.kill(writer, signal.SIGCONT)
            assert await machine.written()
        copy_plan = msgspec.structs.replace(
            workshop.plan("m2", like=plan),
            argv=plan.argv,
            checkpoint=into,
            read_ahead=False,
            being_written=True,
        )
        starting = asyncio.create_task(workshop.engine().start(copy_plan))
        await asyncio.sleep(1)
        os.kill(writer, signal.SIGCONT)
        assert await machine.written()
        written = (into / "pages.img").stat().st_size
        assert there < written
        copy = await starting
        await ticks_beyond(workshop, copy_plan, workshop.ticks(copy_plan)[-1].number)
        await copy.checkpoint(again)
        assert abs((again / "pages.img").stat().st_size - written) < 4 << 20
        await copy.kill()
        await machine.kill()

    workshop.run(test)


async def killed_during_a_start(workshop: GvisorWorkshop, plan: MachinePlan) -> bool:
    """Begin a start in a process that is killed during it; False if the start was over before that was seen."""
    starter = os.fork()
    if starter == 0:
        asyncio.run(workshop.engine().start(plan))
        os._exit(0)
    while not _starting(plan.state_dir / "bundle"):
        if os.waitpid(starter, os.WNOHANG)[0]:  # noqa: ASYNC222 - it does not wait
            return False
        await asyncio.sleep(0.001)
    os.kill(starter, signal.SIGKILL)
    await asyncio.to_thread(os.waitpid, starter, 0)
    return True


def test_a_start_goes_on_without_who_has_begun_it(workshop: GvisorWorkshop) -> None:
    async def test() -> None:
        was_killed = False
        for number in range(20):
            plan = workshop.plan(f"m{number}")
            was_killed = await killed_during_a_start(workshop, plan)
            record = await workshop.engine().started(plan.machine_id, plan.state_dir, plan.limits)
            assert record is not None
            await ticks_beyond(workshop, plan, 1)
            machine = await workshop.engine().adopt(record)
            assert machine is not None
            assert machine.record() == record
            await machine.kill()
            if was_killed:
                break
        assert was_killed

    workshop.run(test)


def test_a_machine_that_was_started_and_does_not_answer_is_ended(workshop: GvisorWorkshop) -> None:
    """Else its guest would run beside the memory that it was restored from."""

    async def test() -> None:
        plan = workshop.plan("m1")
        machine = await workshop.engine().start(plan)
        (control,) = (plan.state_dir / "runsc").glob("*.sock")
        control.unlink()
        assert await workshop.engine().started("m1", plan.state_dir, plan.limits) is None
        assert pids_of(plan.state_dir / "bundle") == set()
        await machine.kill()

    workshop.run(test)


def test_a_machine_works_below_a_path_longer_than_a_sockets_address(workshop: GvisorWorkshop) -> None:
    async def test() -> None:
        plan = workshop.plan("m1")
        state_dir = plan.state_dir / ("x" * 120)
        state_dir.mkdir()
        machine = await workshop.engine().start(msgspec.structs.replace(plan, state_dir=state_dir))
        await machine.pause()
        await machine.resume()
        await machine.kill()

    workshop.run(test)


def test_a_prestarted_machine_that_is_slow_to_go_on_runs_no_guest_after_it_was_found_to_be_no_machine(
    workshop: GvisorWorkshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its supervisor died when it had said what to restore; whoever finds it asks soon if the disk is unchanged."""
    monkeypatch.setattr(prestarted_module, "_BEGINS_S", 0.0)

    async def test() -> None:
        engine = workshop.engine()
        asleep = workshop.plan("m1")
        machine = await engine.start(asleep)
        await ticks_beyond(workshop, asleep, 2)
        memory = workshop.directory()
        await machine.pause()
        await machine.checkpoint(memory)
        await machine.kill()
        for name in (f"slow-{number}" for number in range(20)):
            prestarted_plan = workshop.prestarted_plan(name, asleep)
            prestarted = await engine.prestart(prestarted_plan)
            plan = msgspec.structs.replace(
                workshop.plan(name, like=asleep), state_dir=prestarted_plan.state_dir, checkpoint=memory
            )
            telling = asyncio.ensure_future(cast(GvisorPrestarted, prestarted).restore(plan, None))
            await asyncio.sleep(0.01)
            found_machine = await engine.started(name, plan.state_dir, plan.limits)
            told = (await asyncio.gather(telling, return_exceptions=True))[0]
            if found_machine is None:
                break
            # On a busy host this process asked late, and the machine was not slow.
            assert not isinstance(told, BaseException)
            await told.kill()
        assert found_machine is None
        found = workshop.ticks(plan)
        await asyncio.sleep(1)
        assert workshop.ticks(plan) == found
        await prestarted.kill()

    workshop.run(test)
