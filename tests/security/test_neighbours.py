"""What one sandbox does to itself, its neighbours and the supervisor do not feel."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import AtollError, Limits, Sandbox

LIMITS = Limits(memory_mib=400, processes=200, open_files=1000, disk_mib=48, files=2000)
FORK_BOMB = """
import os
while True:
    try:
        os.fork()
    except OSError:
        pass
"""
MEMORY_HOG = """
import os
while True:
    if os.fork() == 0:
        held = []
        while True:
            held.append(bytes(1 << 20))
    os.wait()
"""
DISK_FILLER = """
import os
number = 0
while True:
    try:
        with open(f"f{number % 7}", "ab") as file:
            file.write(bytes(1 << 20))
    except OSError:
        os.unlink(f"f{number % 7}")
    number += 1
"""
INODE_FILLER = """
import os
number = 0
while True:
    try:
        os.makedirs(f"d{number // 100}", exist_ok=True)
        open(f"d{number // 100}/{number}", "w").close()
        os.symlink("x", f"d{number // 100}/{number}.link")
    except OSError:
        pass
    number += 1
"""
CONNECTION_FLOOD = """
import socket
held = []
while True:
    try:
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("1.1.1.1", 80 + len(held) % 50))
        held.append(one)
    except OSError:
        held = held[500:]
"""
HOGS = {
    "fork bomb": FORK_BOMB,
    "memory hog": MEMORY_HOG,
    "disk filler": DISK_FILLER,
    "inode filler": INODE_FILLER,
    "connection flood": CONNECTION_FLOOD,
}
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
