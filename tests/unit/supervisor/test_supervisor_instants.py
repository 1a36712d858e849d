"""Whether a memory and a disk are of one instant, also when a freeze of the disk was undone in between."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from atoll.engines import MachineEndedError
from atoll.errors import EngineError
from atoll.snapshots import Layers
from atoll.supervisor.integrity.consistency import same_instant
from tests.unit.supervisor.harness import Harness, with_harness


@pytest.fixture
def disk(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    for name in ("upper/etc/deep", "work", "root"):
        (disk / name).mkdir(parents=True)
    for name in ("one", "two", "etc/deep/three"):
        (disk / "upper" / name).write_text(name)
    return disk


@pytest.fixture
def memory(disk: Path, tmp_path: Path) -> Path:
    memory = tmp_path / "memory"
    memory.mkdir()
    after_a_tick(disk)
    (memory / "checkpoint").write_text("memory")
    after_a_tick(memory)
    return memory


def after_a_tick(place: Path) -> None:
    """Wait until a change has another time than what lies there."""
    probe = place.parent / "probe"
    latest = time.clock_gettime_ns(time.CLOCK_REALTIME)
    while True:
        probe.write_text("")
        os.chmod(probe, 0o600)
        if probe.stat().st_ctime_ns > latest:
            return


def layers(tmp_path: Path) -> Layers:
    return Layers(tmp_path / "layers", complete=True)


def cut(disk: Path, layers: Layers, monkeypatch: pytest.MonkeyPatch, moved: int) -> None:
    """Begin a freeze that ends after so many entries."""
    moves = 0

    def rename(*given: object, **more: object) -> None:
        nonlocal moves
        if "src_dir_fd" in more and (moves := moves + 1) > moved:
            raise OSError("cut")
        do(*given, **more)  # type: ignore[arg-type]

    do = os.rename
    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", rename)
        with pytest.raises(OSError, match="cut"):
            layers.freeze(disk)


def test_what_is_written_later_is_of_another_instant(disk: Path, memory: Path) -> None:
    assert same_instant(memory, disk)
    (disk / "upper" / "etc/deep/three").write_text("changed")
    assert not same_instant(memory, disk)


def test_a_freeze_that_was_cut_and_undone_is_no_change(
    disk: Path, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(disk, layers(tmp_path), monkeypatch, 2)
    layers(tmp_path).undo_unknown_freeze(disk, ())
    assert sorted(os.listdir(disk / "upper")) == ["etc", "one", "two"]
    assert same_instant(memory, disk)
    after_a_tick(disk)
    (disk / "upper" / "one").write_text("changed")
    assert not same_instant(memory, disk)


def test_a_whole_freeze_that_is_undone_is_no_change(disk: Path, memory: Path, tmp_path: Path) -> None:
    layers(tmp_path).freeze(disk)
    layers(tmp_path).undo_unknown_freeze(disk, ())
    assert same_instant(memory, disk)


def test_a_change_further_down_during_a_freeze_counts(
    disk: Path, memory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cut(disk, layers(tmp_path), monkeypatch, 0)
    (disk / "upper" / "etc/deep/three").write_text("changed")
    layers(tmp_path).undo_unknown_freeze(disk, ())
    assert not same_instant(memory, disk)


async def _asleep(harness: Harness) -> tuple[str, Path]:
    """A sleeping sandbox whose disk had links to be settled, and its disk."""
    made = await harness.create()
    harness.machine_of(made["sandbox_id"]).memory = "remembered"
    directory = harness.home.sandboxes / made["sandbox_id"]
    disk = directory / "d1"
    linked = disk / "upper" / "linked"
    linked.write_text("a")

    def settle() -> None:
        after_a_tick(disk)
        linked.chmod(0o600)
        after_a_tick(disk)

    harness.layers.unsettled[disk] = settle
    await harness.asleep(made)
    # It is made while the disk is unmounted, and by its time could hide what that changes.
    (directory / "checkpoint" / "checksums.json").unlink()
    return made["sandbox_id"], disk


@with_harness
async def test_a_wake_that_fails_costs_no_memory_whose_disk_had_hard_links_to_be_settled(
    harness: Harness,
) -> None:
    sandbox_id, _ = await _asleep(harness)
    harness.host.fail_next("start", EngineError("not now"))
    one = f"/v1/sandboxes/{sandbox_id}"
    assert (await harness.ask("POST", f"{one}/wake")).status == 500
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(sandbox_id).memory == "remembered"


@with_harness
async def test_a_guest_that_ends_as_soon_as_it_wakes_is_told_to_have_crashed_and_sleeps_again(
    harness: Harness,
) -> None:
    sandbox_id, _ = await _asleep(harness)
    harness.host.fail_next("start", MachineEndedError("it ended as soon as it had started"))
    one = f"/v1/sandboxes/{sandbox_id}"
    told = (await harness.ask("POST", f"{one}/wake")).json
    assert (told["code"], "`atoll resume --no-memory`" in told["hint"]) == ("sandbox_crashed", True)
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"


@with_harness
async def test_hard_links_that_are_settled_after_a_wake_that_failed_are_a_change(harness: Harness) -> None:
    sandbox_id, disk = await _asleep(harness)

    def settle() -> None:
        after_a_tick(disk)
        (disk / "upper" / "linked").chmod(0o644)

    # Nobody can say whether its guest ran.
    harness.layers.unsettled[disk] = settle
    harness.host.fail_next("start", EngineError("not now"))
    one = f"/v1/sandboxes/{sandbox_id}"
    assert (await harness.ask("POST", f"{one}/wake")).status == 500
    assert (await harness.ask("GET", one)).json["state"] == "crashed"


@with_harness
async def test_a_sandbox_whose_hard_links_cannot_be_settled_falls_asleep(harness: Harness) -> None:
    made = await harness.create()
    one = f"/v1/sandboxes/{made['sandbox_id']}"
    harness.machine_of(made["sandbox_id"]).memory = "remembered"

    def settle() -> None:
        raise OSError("the disk is full")

    harness.layers.unsettled[harness.home.sandboxes / made["sandbox_id"] / "d1"] = settle
    await harness.asleep(made)
    assert (await harness.ask("GET", one)).json["state"] == "suspended"
    assert (await harness.ask("POST", f"{one}/wake")).json["state"] == "running"
    assert harness.machine_of(made["sandbox_id"]).memory == "remembered"
