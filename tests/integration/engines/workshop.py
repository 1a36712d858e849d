"""Machines in gVisor with the host's own programs as their disk, made inside a home's holder."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import secrets
import shutil
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from atoll.engines import Bind, GvisorEngine, MachinePlan, PrestartedMachine, PrestartPlan
from atoll.engines.gvisor.prestarted import GvisorPrestarted
from atoll.host import (
    Home,
    Mounts,
    cgroup_root,
    end_holder,
    ensure_holder,
    join_holder,
    new_netns,
    runsc_path,
    unpin,
)
from atoll.testing import FILE_BYTES, Ledger, Tick, take_ledger
from atoll.types import Limits
from tests.forked import in_child
from tests.homes import processes_of

COUNT = "n=0; while :; do echo $(uname -n) $n >>/ticks; n=$((n+1)); sleep 0.02; done"
FILL_DISK = f"""
n=0
while :; do
  head -c {FILE_BYTES} /dev/zero >/more$n && echo $(uname -n) $n >>/ticks && n=$((n+1))
  sleep 0.02
done
"""
FILL_MEMORY = "head -c {size_bytes} /dev/zero >/dev/shm/much; {count}"
TEST_TIMEOUT_S = 240.0


class GvisorWorkshop:
    """See ``atoll.testing.Workshop``."""

    def __init__(self, directory: Path) -> None:
        # Its control groups have their name from the path: an interrupted run's are not taken for this one's.
        self.home = Home(directory / f"home-{secrets.token_hex(4)}", run=directory / "run")
        self._numbers = itertools.count()
        self._pins: list[Path] = []

    def engine(self) -> GvisorEngine:
        return GvisorEngine(runsc_path(), cgroup_root(self.home))

    def plan(self, machine_id: str, *, like: MachinePlan | None = None) -> MachinePlan:
        state_dir = self.directory()
        pin = self.home.pins / state_dir.name
        new_netns(pin)
        self._pins.append(pin)
        rootfs = state_dir / "root"
        if like is None:
            make_root(rootfs)
        else:
            shutil.copytree(like.rootfs, rootfs, symlinks=True)
        return MachinePlan(
            machine_id=machine_id,
            state_dir=state_dir,
            rootfs=rootfs,
            netns=pin,
            argv=("/bin/sh", "-c", COUNT),
            env=("PATH=/usr/bin:/bin",),
            hostname=machine_id,
            binds=(Bind(source="/usr", target="/usr"),),
            limits=Limits(memory_mib=1024, processes=1000),
        )

    def filling_disk(self, plan: MachinePlan) -> MachinePlan:
        return msgspec.structs.replace(plan, argv=("/bin/sh", "-c", FILL_DISK))

    def filling_memory(self, plan: MachinePlan, size_bytes: int) -> MachinePlan:
        program = FILL_MEMORY.format(size_bytes=size_bytes, count=COUNT)
        return msgspec.structs.replace(plan, argv=("/bin/sh", "-c", program))

    def prestarted_plan(self, machine_id: str, like: MachinePlan) -> PrestartPlan:
        state_dir = self.directory()
        pin = self.home.pins / state_dir.name
        new_netns(pin)
        self._pins.append(pin)
        roots = self.home.run / "roots"
        Mounts.share(roots)
        return PrestartPlan(
            machine_id=machine_id,
            state_dir=state_dir,
            place=roots / machine_id,
            netns=pin,
            argv=like.argv,
            env=like.env,
            binds=like.binds,
            limits=like.limits,
        )

    def end_a_process_of(self, prestarted: PrestartedMachine) -> None:
        assert isinstance(prestarted, GvisorPrestarted)
        os.kill(msgspec.json.decode(prestarted.machine.record())["sentry_pid"], signal.SIGKILL)

    def directory(self) -> Path:
        path = self.home.path / f"d{next(self._numbers)}"
        path.mkdir()
        return path

    def ticks(self, plan: MachinePlan) -> list[Tick]:
        file = plan.rootfs / "ticks"
        lines = file.read_text().splitlines() if file.exists() else []
        return [Tick(name, int(number)) for name, number in map(str.split, lines)]

    def ledger(self) -> Ledger:
        return take_ledger(self.home)

    def run(self, test: Callable[[], Awaitable[None]]) -> None:
        self.home.make()
        holder = ensure_holder(self.home)
        try:
            failure = in_child(lambda: self._run(test, holder_join=lambda: join_holder(holder)))
        finally:
            end_holder(self.home)
        if failure:
            self._end_machines()
            pytest.fail(failure, pytrace=False)
        assert take_ledger(self.home).processes == frozenset()

    def _end_machines(self) -> None:
        """End the guests of a test that failed before it did so; they would compute beside all later tests."""
        for line in processes_of(self.home):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(line.partition(":")[0]), signal.SIGKILL)

    def _run(self, test: Callable[[], Awaitable[None]], holder_join: Callable[[], None]) -> None:
        holder_join()
        try:
            asyncio.run(_bounded(test))
        finally:
            for pin in self._pins:
                unpin(pin)
            root = cgroup_root(self.home)
            if root is not None:
                root.remove()


async def _bounded(test: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(TEST_TIMEOUT_S):
        await test()


def make_root(rootfs: Path) -> None:
    """A root file system that is empty but for a link to each of the host's directories of programs."""
    rootfs.mkdir()
    for name in ("usr", "proc", "sys", "dev", "tmp", "run"):
        (rootfs / name).mkdir()
    for name in ("bin", "lib", "lib64"):
        if os.path.lexists(f"/usr/{name}"):
            (rootfs / name).symlink_to(f"usr/{name}")
