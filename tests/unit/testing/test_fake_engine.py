"""The fake engine keeps the promises that the supervisor's tests rely on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from atoll.engines import MachinePlan
from atoll.errors import EngineError
from atoll.testing import FakeEngine, FakeHost


@pytest.fixture
def plan(tmp_path: Path) -> MachinePlan:
    return MachinePlan(
        machine_id="m1", state_dir=tmp_path, rootfs=tmp_path, netns=tmp_path / "net", argv=("/init",)
    )


def test_memory_comes_back_from_a_checkpoint(plan: MachinePlan, tmp_path: Path) -> None:
    async def test() -> None:
        engine = FakeEngine()
        machine = await engine.start(plan)
        machine.memory = "a thought"
        await machine.checkpoint(tmp_path)
        await machine.kill()
        woken = await engine.start(msgspec.structs.replace(plan, checkpoint=tmp_path))
        assert woken.memory == "a thought"

    asyncio.run(test())


def test_a_crash_ends_every_wait_and_later_calls(plan: MachinePlan) -> None:
    async def test() -> None:
        machine = await FakeEngine().start(plan)
        waiting = asyncio.ensure_future(machine.wait())
        machine.crash()
        await waiting
        with pytest.raises(EngineError, match="dead"):
            await machine.pause()

    asyncio.run(test())


def test_a_second_engine_on_the_same_host_adopts_a_living_machine_only(plan: MachinePlan) -> None:
    async def test() -> None:
        host = FakeHost()
        machine = await FakeEngine(host).start(plan)
        assert await FakeEngine(host).adopt(machine.record()) is machine
        machine.crash()
        assert await FakeEngine(host).adopt(machine.record()) is None
        assert host.machines == {}

    asyncio.run(test())


def test_a_failure_ordered_by_the_test_happens_once(plan: MachinePlan) -> None:
    async def test() -> None:
        engine = FakeEngine()
        engine.host.fail_next("start")
        with pytest.raises(EngineError, match="start"):
            await engine.start(plan)
        await engine.start(plan)
        assert engine.host.methods("m1") == ["start", "start"]

    asyncio.run(test())
