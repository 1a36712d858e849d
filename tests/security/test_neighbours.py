"""What one sandbox does to itself, its neighbours and the supervisor do not feel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.hogs import HOGS

from atoll import AtollError, Limits, Sandbox

LIMITS = Limits(memory_mib=400, processes=200, open_files=1000, disk_mib=48, files=2000)
ROUNDS = 12


@pytest.fixture(scope="module")
def neighbour(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create(name="neighbour") as sandbox:
        yield sandbox


@pytest.mark.parametrize("hog", HOGS)
def test_neighbours_and_supervisor_answer_beside(hog: str, neighbour: Sandbox) -> None:
    with Sandbox.create(limits=LIMITS) as hostile:
        with contextlib.suppress(AtollError):  # the limit may strike before the answer comes
            hostile.start(["python3", "-c", HOGS[hog]])
        for number in range(ROUNDS):
            assert neighbour.exec(["echo", str(number)], timeout_s=120).stdout == f"{number}\n"
            assert "neighbour" in [info.name for info in Sandbox.list()]
        used = hostile.stats()
        assert used.memory_bytes is None or used.memory_bytes <= 600 << 20
        assert used.disk_bytes <= 64 << 20
        assert used.processes is None or used.processes <= 200 + 64
