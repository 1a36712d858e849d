from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll.errors import HostError
from atoll.host import Home, earlier_program, end_program, note_program, start_ticks


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as started:
        try:
            yield started
        finally:
            started.kill()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path, run=tmp_path)


def test_the_recorded_process_is_ended(home: Home, process: subprocess.Popen[bytes]) -> None:
    end_program(home, "edge")
    note_program(home, "edge", process.pid, start_ticks(process.pid) or 0)
    end_program(home, "edge")
    assert process.wait(60) == -9
    end_program(home, "edge")


def test_a_later_process_with_the_same_pid_is_left_alone(
    home: Home, process: subprocess.Popen[bytes]
) -> None:
    note_program(home, "edge", process.pid, (start_ticks(process.pid) or 0) + 1)
    end_program(home, "edge")
    note_program(home, "edge", process.pid, start_ticks(process.pid) or 0)
    record = home.run / "edge.json"
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    record.write_text(record.read_text().replace(boot, "another boot"))
    end_program(home, "edge")
    assert process.poll() is None


def test_an_earlier_program_is_found_waited_for_and_killed(
    home: Home, process: subprocess.Popen[bytes]
) -> None:
    assert earlier_program(home, "relay") is None
    note_program(home, "relay", process.pid, start_ticks(process.pid) or 0)
    found, left = earlier_program(home, "relay"), earlier_program(home, "relay")
    assert found is not None
    assert left is not None
    assert found.pid == process.pid
    left.leave()

    async def wait_and_kill() -> None:
        waiting = asyncio.ensure_future(found.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        await found.kill()
        await waiting

    asyncio.run(wait_and_kill())
    assert process.wait(60) == -9
    assert earlier_program(home, "relay") is None


def test_a_record_that_nobody_can_read_is_an_error(home: Home) -> None:
    (home.run / "edge.json").write_text("{")
    with pytest.raises(HostError, match="edge.json"):
        end_program(home, "edge")
