"""A host that runs short of memory: a pretended one, which only the sandboxes of this file use."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import homes
from tests.e2e.command_line import atoll
from tests.waiting import until

from atoll import Housekeeping, Sandbox
from atoll.errors import AtollError, HostMemoryError, SandboxCrashedError
from atoll.host import Home

MIB = 1 << 20
TOTAL_MIB, KEPT_MIB = 8192, 1024
GROWS = """
import time
held = []
while len(held) < 40:
    held.append(bytes(16 << 20))
    held[-1] = held[-1].replace(b"\\0", b"x")
    time.sleep(0.05)
time.sleep(600)
"""
HOLDS = "held = b'x' * (150 << 20)\nimport time\nprint('holds', flush=True)\ntime.sleep(600)"
FILLS = "while head -c 40M /dev/zero >>/dev/shm/filler; do :; done"


class PretendedHost:
    """Writes a ``meminfo``: of ``left_mib`` beyond what stays free, sandboxes have used what they really use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._over = threading.Event()
        self._sandboxes: list[Sandbox] = []
        self._left_mib = TOTAL_MIB - KEPT_MIB
        self.write(0)

    def write(self, used_bytes: int) -> None:
        available_kib = (KEPT_MIB + self._left_mib) * 1024 - used_bytes // 1024
        aside = self._path.with_suffix(".new")
        aside.write_text(f"MemTotal: {TOTAL_MIB * 1024} kB\nMemAvailable: {max(0, available_kib)} kB\n")
        aside.rename(self._path)

    def run(self) -> None:
        while not self._over.wait(0.02):
            used_bytes = 0
            for sandbox in self._sandboxes:
                with contextlib.suppress(AtollError):
                    used_bytes += sandbox.stats().memory_bytes or 0
            self.write(used_bytes)

    @contextlib.contextmanager
    def used_by(self, *sandboxes: Sandbox, left_mib: int) -> Iterator[None]:
        """Leave so much from now on, of which these sandboxes use what they take beyond what they have now."""
        had_mib = sum((sandbox.stats().memory_bytes or 0) // MIB for sandbox in sandboxes)
        # Handles of its own: each is for one thread.
        self._sandboxes = [Sandbox.connect(sandbox.id) for sandbox in sandboxes]
        self._left_mib = left_mib + had_mib
        self.write(had_mib * MIB)
        self._over.clear()
        thread = threading.Thread(target=self.run)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()
            for sandbox in self._sandboxes:
                sandbox.close()
            self._left_mib, self._sandboxes = TOTAL_MIB - KEPT_MIB, []
            self.write(0)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PretendedHost]:
    path = tmp_path_factory.mktemp("host") / "meminfo"
    host = PretendedHost(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_MEMINFO", str(path))
        patch.setenv("ATOLL_HOST_MEMORY_FREE_MIB", str(KEPT_MIB))
        with homes.make_home():
            yield host


@pytest.mark.twice
def test_the_fastest_grower_s_program_is_killed_and_told_so_and_all_others_go_on(host: PretendedHost) -> None:
    with Sandbox.create(name="grows") as grows, Sandbox.create(name="holds") as holds:
        held = holds.processes.start(["python3", "-c", HOLDS])
        until(lambda: (holds.stats().memory_bytes or 0) > 150 * MIB)
        with host.used_by(grows, holds, left_mib=300):
            hog = grows.processes.start(["python3", "-c", GROWS])
            slowest_s = 0.0
            while grows.processes.list():
                began_s = time.monotonic()
                assert holds.exec(["echo", "there"]).stdout == "there\n"
                assert b"holds" in atoll("ls").stdout
                slowest_s = max(slowest_s, time.monotonic() - began_s)
            result = hog.wait()
        assert result.exit_code == 137
        assert result.memory_kill is not None and result.memory_kill.is_for_host
        assert "the host ran short of memory" in str(result.memory_kill)
        assert 100 * MIB < result.memory_kill.held_bytes < 700 * MIB
        assert grows.exec(["echo", "still"]).stdout == "still\n"
        assert "the host ran short of memory" in "".join(grows.logs())
        assert [one.pid for one in holds.processes.list()] == [held.pid]
        assert slowest_s < 20


def test_a_guest_that_grows_without_a_big_program_ends_and_says_why(host: PretendedHost) -> None:
    with Sandbox.create() as sandbox, Sandbox.create() as neighbour:
        with host.used_by(sandbox, left_mib=200):
            with pytest.raises(SandboxCrashedError):
                sandbox.run(FILLS, user="root", timeout_s=240)
            assert neighbour.exec(["echo", "there"]).stdout == "there\n"
        assert "the host ran short of memory" in (sandbox.info().reason or "")
        assert sandbox.exec(["echo", "again"]).stdout == "again\n"


def test_the_kernel_kills_sandboxes_before_anything_else(host: PretendedHost) -> None:
    with Sandbox.create():
        home = os.fsencode(Home.default().path)
        scores: dict[str, set[str]] = {}
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                words = (entry / "cmdline").read_bytes() if entry.name.isdigit() else b""
                if home in words:
                    name = "guest" if words.startswith(b"runsc") else "other"
                    scores.setdefault(name, set()).add((entry / "oom_score_adj").read_text().strip())
    assert scores["guest"] == {"1000"}
    assert "1000" not in scores["other"]


def test_nothing_starts_or_wakes_while_too_little_is_left_and_a_paused_one_makes_room(
    host: PretendedHost,
) -> None:
    with Sandbox.create(name="asleep") as asleep, Sandbox.create(name="paused") as paused:
        asleep.suspend()
        paused.pause()
        with host.used_by(left_mib=-10):
            with pytest.raises(HostMemoryError, match="1,024 MiB stay free") as refused:
                asleep.exec(["true"])
            assert refused.value.retryable
            with pytest.raises(HostMemoryError):
                Sandbox.create()
            until(lambda: paused.info().state == "suspended")
            assert Housekeeping.host_memory().spare_bytes < 0
            assert b"host is short of memory" in atoll("stats").stdout
        assert asleep.exec(["echo", "awake"]).stdout == "awake\n"
        assert paused.exec(["echo", "awake"]).stdout == "awake\n"
