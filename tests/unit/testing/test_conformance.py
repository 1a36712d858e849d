"""The conformance class judges engines with any subset of capabilities, and finds those that lie."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.unit.testing.ticking import FakeWorkshop, ticking_engine

from atoll.engines import (
    AdjustableLimits,
    DetachableFiles,
    DiskBudget,
    DiskGrowth,
    LatePages,
    Machine,
    MachinePlan,
    MemoryReadings,
    Prestarting,
    can,
)
from atoll.testing import (
    CAPABILITIES,
    FILE_BYTES,
    EngineConformance,
    FakeMachine,
    PrestartedConformance,
    fake_engine,
)

_SUBSETS: dict[str, frozenset[type]] = {
    "none": frozenset(),
    "some": frozenset({LatePages, AdjustableLimits, Prestarting}),
    "all": CAPABILITIES,
}


@pytest.fixture(params=_SUBSETS)
def workshop(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeWorkshop:
    _hurry(monkeypatch)
    return FakeWorkshop(tmp_path, ticking_engine(_SUBSETS[request.param]))


def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("atoll.testing.workshop.STILL_S", 0.05)
    monkeypatch.setattr("atoll.testing.capability_conformance.REFUSED_S", 0.1)


class TestFakes(EngineConformance):
    """Every test of the base class, on fake engines."""


class TestPrestartedFakes(PrestartedConformance):
    """Every test of the base class, on fake engines."""


@pytest.mark.parametrize("subset", _SUBSETS.values(), ids=_SUBSETS)
def test_an_engine_has_the_capabilities_that_it_claims_and_no_other(subset: frozenset[type]) -> None:
    engine_type = fake_engine(subset)
    assert {capability for capability in CAPABILITIES if can(engine_type, capability)} == subset


def _lying(capability: type, **methods: Any) -> type[Any]:
    """The type of an engine that has the methods of a capability, which do not do what they should."""
    engine_type = ticking_engine(CAPABILITIES)
    if capability is DetachableFiles:
        return type("Lying", (engine_type,), methods)
    machine_type = type("LyingMachine", (engine_type.machine_type,), methods)
    return type("Lying", (engine_type,), {"machine_type": machine_type})


def test_an_engine_that_claims_a_late_checkpoint_and_writes_another_moment_fails(tmp_path: Path) -> None:
    async def checkpoint_late(machine: Any, into: Path) -> None:
        machine.memory = "100"
        await machine.checkpoint(into)

    workshop = FakeWorkshop(tmp_path, _lying(LatePages, checkpoint_late=checkpoint_late))
    with pytest.raises(AssertionError):
        TestFakes().test_a_checkpoint_that_is_written_late_is_of_its_moment(workshop)


def test_an_engine_that_claims_to_detach_files_and_lets_the_guest_run_fails(tmp_path: Path) -> None:
    async def attach_files(_: object, machine: Machine, plan: MachinePlan) -> None:
        await machine.resume()

    workshop = FakeWorkshop(tmp_path, _lying(DetachableFiles, attach_files=attach_files))
    with pytest.raises(AssertionError):
        TestFakes().test_a_paused_machine_goes_on_upon_another_root_with_the_same_files(workshop)


def test_an_engine_that_claims_to_change_limits_and_does_not_fails(tmp_path: Path) -> None:
    async def limit(machine: object, limits: object, *, keep_free_percent: int = 0) -> None:
        pass

    workshop = FakeWorkshop(tmp_path, _lying(AdjustableLimits, limit=limit))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guest_goes_on_under_other_limits(workshop)


def test_an_engine_that_claims_a_disk_budget_and_holds_none_fails(tmp_path: Path) -> None:
    async def limit_growth(machine: object, growth: object, event_fd: int | None = None) -> None:
        pass

    workshop = FakeWorkshop(tmp_path, _lying(DiskBudget, limit_growth=limit_growth))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guest_writes_no_more_than_its_budget_and_the_end_of_it_is_told(
            workshop, DiskGrowth(size_bytes=64 << 20, files=2), 2
        )


@pytest.mark.parametrize("lie", ["size", "files", "event"])
def test_an_engine_that_holds_but_a_part_of_a_disk_budget_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: str
) -> None:
    _hurry(monkeypatch)
    honest = FakeMachine.limit_growth

    async def limit_growth(machine: Any, growth: DiskGrowth | None, event_fd: int | None = None) -> None:
        if growth and lie in ("size", "files"):
            more = {"size": {"size_bytes": 1 << 40}, "files": {"files": 1 << 20}}[lie]
            growth = msgspec.structs.replace(growth, **more)
        await honest(machine, growth, None if lie == "event" else event_fd)

    workshop = FakeWorkshop(tmp_path, _lying(DiskBudget, limit_growth=limit_growth))
    budgets = {"size": (DiskGrowth(size_bytes=4 * FILE_BYTES, files=100), 4)}
    growth, most = budgets.get(lie, (DiskGrowth(size_bytes=64 << 20, files=2), 2))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guest_writes_no_more_than_its_budget_and_the_end_of_it_is_told(
            workshop, growth, most
        )


def test_an_engine_that_reads_the_same_memory_of_every_guest_fails(tmp_path: Path) -> None:
    workshop = FakeWorkshop(tmp_path, _lying(MemoryReadings, memory_bytes=lambda machine: 1 << 20))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guests_memory_is_read_as_it_is_and_has_not_hit_its_limit(workshop)


def test_an_engine_that_does_not_tell_what_ended_a_guest_fails(tmp_path: Path) -> None:
    workshop = FakeWorkshop(tmp_path, _lying(MemoryReadings, hit_memory_limit=lambda machine: False))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guest_that_the_host_ends_for_its_memory_has_hit_its_limit(workshop)


def test_an_engine_that_blames_the_memory_of_a_guest_that_goes_on_fails(tmp_path: Path) -> None:
    workshop = FakeWorkshop(tmp_path, _lying(MemoryReadings, hit_memory_limit=lambda machine: True))
    with pytest.raises(AssertionError):
        TestFakes().test_a_guests_memory_is_read_as_it_is_and_has_not_hit_its_limit(workshop)
