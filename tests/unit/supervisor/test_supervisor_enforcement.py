from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from atoll.engines import DiskGrowth
from atoll.errors import EngineError, UnsupportedError
from atoll.host import DiskUsage
from atoll.host.trees.usage import TreeUse, tree_use
from atoll.host.trees.whole import stats_below
from atoll.supervisor.doctor import defaults_finding, limits_finding
from atoll.supervisor.machines.default_limits import default_limits, disk_left
from atoll.supervisor.machines.disk_budget import growth_at_start, growth_left
from atoll.supervisor.machines.enforcement import Means, held_of, holding, refuse_unheld
from atoll.supervisor.monitors import disk as diskwatch
from atoll.supervisor.monitors.disk import DiskMonitor
from atoll.supervisor.monitors.limit_monitor import pause_s
from atoll.supervisor.state.sandbox import crash_reason
from atoll.types import Limits

ROOT = Means(cgroups=True, shaping=True)
USER = Means(cgroups=False, shaping=True)


def test_every_limit_has_its_place_in_the_table() -> None:
    for means in (ROOT, USER, Means(cgroups=False, shaping=False, layers=False)):
        assert set(holding(means)) == set(Limits.__struct_fields__)
    assert held_of(Limits(memory_mib=100, processes=20), USER) == {
        "memory_mib": "watched",
        "processes": "hard",
    }


def test_what_a_host_cannot_hold_is_refused() -> None:
    refuse_unheld(Limits(vcpus=0.5, network_mib_s=1), ROOT)
    refuse_unheld(Limits(vcpus=2, disk_mib=10), USER)
    for limits, means in (
        (Limits(vcpus=0.5), USER),
        (Limits(network_mib_s=1), Means(cgroups=True, shaping=False)),
        (Limits(files=1000), Means(cgroups=True, shaping=True, layers=False)),
    ):
        with pytest.raises(UnsupportedError, match="cannot enforce the limit"):
            refuse_unheld(limits, means)


def test_doctor_says_how_limits_hold() -> None:
    assert limits_finding(ROOT).level == "ok"
    assert "watched: memory_mib" in limits_finding(USER).message
    assert limits_finding(Means(cgroups=True, shaping=False)).level == "note"


def test_what_may_be_added_is_what_the_limit_leaves() -> None:
    left = growth_left(Limits(disk_mib=1), TreeUse(size_bytes=4096, files=1))
    assert left.size_bytes == (1 << 20) - 4096
    assert left.files > 1 << 50
    assert growth_left(Limits(files=200), TreeUse(0, 300)).files == -100
    assert isinstance(left, DiskGrowth)


@pytest.mark.parametrize(
    ("changes", "is_empty", "files"),
    [
        ({}, False, 93),
        ({"checkpoint": Path("memory")}, False, None),  # it knows itself
        ({"checkpoint": Path("memory")}, True, 93),
        ({"limits": Limits(processes=9)}, False, None),
        ({"engine_disk": True}, False, None),
    ],
)
def test_what_may_be_added_at_first_is_known_wherever_no_memory_knows_it(
    changes: dict[str, object], *, is_empty: bool, files: int | None
) -> None:
    plan = {
        "checkpoint": None,
        "limits": Limits(files=100),
        "engine_disk": False,
        "disk": Path("disk"),
        **changes,
    }
    layers: Any = SimpleNamespace(use=lambda _: TreeUse(0, 7), outgrows=lambda *_: not is_empty)
    growth = growth_at_start(layers, cast(Any, SimpleNamespace(**plan)))
    assert (growth and growth.files) == files


def test_memory_is_looked_at_the_more_often_the_less_is_left() -> None:
    assert pause_s(0, 100 << 30) == 1.0
    assert pause_s(99, 100) == 0.05


def test_a_default_limit_is_half_of_the_memory_and_20_gib_of_the_disk_or_what_leaves_a_tenth_free() -> None:
    large = default_limits(8 << 30, 1000 << 30)
    assert (large.memory_mib, large.disk_mib) == (4096, 20_480)
    assert default_limits(8 << 30, 10 << 30).disk_mib == 9215
    assert disk_left(DiskUsage(total=1000, free=300)) == 200
    assert disk_left(DiskUsage(total=1000, free=99)) == 0


def test_a_disk_with_the_default_limit_is_measured_only_when_its_kernel_asks(tmp_path: Path) -> None:
    done: list[str] = []

    class Machine:
        machine_id = "m"

        async def watch_disk(self, event_fd: int) -> None:
            done.append("watched")
            os.eventfd_write(event_fd, 1)

        async def mark_disk(self) -> None:
            done.append("marked")

        async def limit_growth(self, growth: DiskGrowth, event_fd: int | None) -> None:
            done.append(f"{growth.size_bytes >> 30} GiB left, event given: {event_fd is not None}")
            gone.set()
            raise EngineError("it has ended")

    gone = asyncio.Event()
    layers: Any = SimpleNamespace(use=lambda _: TreeUse(5 << 30, 0))
    running: Any = SimpleNamespace(
        machine=Machine(), disk=tmp_path, gone=gone, leaving=False, limits_changed=asyncio.Event()
    )
    watch = DiskMonitor(running, running.machine, layers, lambda: Limits(disk_mib=20_480), lambda: True)
    asyncio.run(asyncio.wait_for(watch.run(), 60))
    assert done == ["watched", "marked", "15 GiB left, event given: False"]


def test_what_doctor_says_of_the_default_limits() -> None:
    means = Means(cgroups=True, shaping=True)
    fine = defaults_finding(means, 8 << 30, DiskUsage(1000 << 30, 300 << 30))
    assert (fine.level, fine.remedy) == ("ok", None)
    assert "20,480 MiB of disk, and 10 % of the host's disk stay free: 200.0 GiB are left" in fine.message
    full = defaults_finding(means, 8 << 30, DiskUsage(1000 << 30, 50 << 30))
    assert full.level == "warning"
    assert full.remedy is not None and "--disk" in full.remedy
    engine = defaults_finding(msgspec.structs.replace(means, layers=False), 8 << 30, DiskUsage(1000, 0))
    assert (engine.level, "no limit on the disk" in engine.message) == ("note", True)


def test_a_tree_counts_every_name_and_the_pages_of_hard_links_once(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "small").write_bytes(b"x")
    (tmp_path / "again").hardlink_to(tmp_path / "sub" / "small")
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(10 << 20)
    (tmp_path / "link").symlink_to("nowhere")
    assert tree_use(tmp_path) == TreeUse(size_bytes=(10 << 20) + 6 * 4096, files=5)


def test_a_directory_that_becomes_a_link_while_it_is_measured_is_left_out(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_bytes(b"x")
    found = []
    for each in stats_below(tmp_path):
        found.append(each)
        if len(found) == 2:  # both are known, and neither is open yet
            for name in ("one", "two"):
                (tmp_path / name).rename(tmp_path / f"{name} moved")
                (tmp_path / name).symlink_to("/")
    assert len(found) == 2


def test_a_disk_that_could_not_be_measured_is_measured_again(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[object, ...]] = []
    gone = asyncio.Event()

    class Machine:
        machine_id = "m"

        async def mark_disk(self) -> None: ...

        async def limit_growth(self, *given: object) -> None:
            told.append(given)
            gone.set()
            raise EngineError("it has ended")

    failures = iter([OSError("no descriptor is left"), EngineError("it does not answer")])

    def use(_: object) -> TreeUse:
        for failure in failures:
            raise failure
        return TreeUse(0, 0)

    monkeypatch.setattr(diskwatch, "_AGAIN_S", 0.01)
    running: Any = SimpleNamespace(
        machine=Machine(), disk=Path(), gone=gone, leaving=False, limits_changed=asyncio.Event()
    )
    asyncio.run(
        DiskMonitor(
            running, running.machine, cast(Any, SimpleNamespace(use=use)), lambda: Limits(disk_mib=1)
        ).run()
    )
    ((growth, event_fd),) = told
    assert growth == DiskGrowth(size_bytes=1 << 20, files=1 << 60)
    assert event_fd is not None


def test_a_busy_host_does_not_make_a_guest_wait_for_its_disk_to_be_measured_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Machine:
        machine_id = "m"

        async def mark_disk(self) -> None: ...

        async def limit_growth(self, *_: object) -> None: ...

    def use(_: object) -> TreeUse:
        time.sleep(0.2)  # others have the processor
        return TreeUse(0, 0)

    pauses: list[float] = []

    async def paused(seconds: float) -> None:
        pauses.append(seconds)
        raise OSError("enough")

    running: Any = SimpleNamespace(machine=Machine(), disk=Path(), gone=asyncio.Event(), leaving=False)
    running.gone.set()
    monkeypatch.setattr(cast(Any, diskwatch).asyncio, "sleep", paused)
    asyncio.run(
        DiskMonitor(
            running, running.machine, cast(Any, SimpleNamespace(use=use)), lambda: Limits(disk_mib=1)
        ).run()
    )
    assert [pause < 1 for pause in pauses] == [True]


@pytest.mark.parametrize(
    ("limits", "hit", "said"),
    [
        (Limits(memory_mib=300), True, "its memory limit of 300 MiB"),
        (Limits(), True, "the default memory limit"),
        (Limits(), False, "its processes ended unexpectedly"),
    ],
)
def test_the_reason_of_a_crash_names_the_memory_limit_that_was_reached(
    limits: Limits, hit: bool, said: str
) -> None:
    running: Any = SimpleNamespace(
        reason=None, machine=SimpleNamespace(hit_memory_limit=lambda: hit, memory_bytes=lambda: 0)
    )
    assert said in crash_reason(cast(Any, SimpleNamespace(limits=limits)), running)
    running.reason = "somebody knows better"
    assert crash_reason(cast(Any, SimpleNamespace(limits=limits)), running) == "somebody knows better"
