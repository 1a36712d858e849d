"""Sleep and snapshots write the memory that has changed, and refer to earlier checkpoints for the rest."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.e2e import memory_keeper
from tests.waiting import until

from atoll import Sandbox, Snapshots, Supervisor
from atoll.errors import DamagedError, InUseError
from atoll.protocol import Hello

SIZE_MIB = 64
MIB = 1 << 20
# What a kernel, an agent and Python change by living a moment.
REST_BYTES = 12 * MIB


@pytest.fixture
def keeper(home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        sandbox.files.write("memory_keeper.py", Path(memory_keeper.__file__).read_text())
        sandbox.processes.start(["python3", "memory_keeper.py", str(SIZE_MIB)])
        assert answer(sandbox) == "ready"
        yield sandbox


def asked(sandbox: Sandbox, what: str) -> str:
    sandbox.run(f"echo {what} >ask.new && mv ask.new ask").check()
    return answer(sandbox)


def answer(sandbox: Sandbox) -> str:
    until(lambda: sandbox.files.exists("answer"))
    text = sandbox.files.read("answer")
    sandbox.files.delete("answer")
    return text


def slept(sandbox: Sandbox) -> Path:
    """Suspend a sandbox, and return its checkpoint."""
    sandbox.suspend()
    checkpoint = Path(os.environ["ATOLL_HOME"]) / "sandboxes" / sandbox.id / "checkpoint"
    until(lambda: (checkpoint / "checksums.json").exists())
    return checkpoint


def own_bytes(checkpoint: Path) -> int:
    return (checkpoint / "pages.img").stat().st_size


def referred(checkpoint: Path) -> list[Path]:
    return sorted(checkpoint.glob("pages-*.img"))


def test_each_sleep_writes_what_has_changed_since_the_last(keeper: Sandbox) -> None:
    before = asked(keeper, "sum")
    assert own_bytes(slept(keeper)) > SIZE_MIB * MIB
    assert keeper.exec(["true"]).exit_code == 0
    checkpoint = slept(keeper)
    assert own_bytes(checkpoint) < REST_BYTES
    assert len(referred(checkpoint)) == 1
    assert asked(keeper, "change 4") == "done"
    changed = asked(keeper, "sum")
    assert changed != before
    checkpoint = slept(keeper)
    assert 4 * MIB < own_bytes(checkpoint) < 4 * MIB + REST_BYTES
    assert asked(keeper, "sum") == changed
    # Nothing of it lies in the files of before any more, so they go.
    assert asked(keeper, f"change {SIZE_MIB}") == "done"
    changed = asked(keeper, "sum")
    checkpoint = slept(keeper)
    assert sum(path.stat().st_size for path in referred(checkpoint)) < 2 * REST_BYTES
    assert asked(keeper, "sum") == changed


def test_a_page_here_and_there_is_all_that_is_written(keeper: Sandbox) -> None:
    slept(keeper)
    for _ in range(3):
        assert asked(keeper, "spread") == "done"
        before = asked(keeper, "sum")
        assert own_bytes(slept(keeper)) < REST_BYTES
        assert asked(keeper, "sum") == before


def test_snapshots_and_copies_share_memory(keeper: Sandbox, home: Path) -> None:
    first = keeper.snapshot()
    assert asked(keeper, "change 2") == "done"
    before = asked(keeper, "sum")
    second = keeper.snapshot()
    assert own_bytes(home / "snapshots" / second.snapshot_id / "checkpoint") < 2 * MIB + REST_BYTES
    assert asked(keeper, "change 1") == "done"
    later = asked(keeper, "sum")
    checkpoint = slept(keeper)
    assert own_bytes(checkpoint) < 1 * MIB + REST_BYTES
    with Sandbox.create(second) as copy:
        assert asked(copy, "sum") == before
        # A copy refers to the snapshot, too.
        assert own_bytes(slept(copy)) < REST_BYTES
        assert asked(copy, "sum") == before
    assert asked(keeper, "sum") == later
    (fork,) = keeper.fork(1)
    with fork:
        assert asked(fork, "sum") == later
        slept(fork)
        assert asked(fork, "sum") == later
    keeper.rollback(second)
    assert asked(keeper, "sum") == before
    slept(keeper)
    assert asked(keeper, "sum") == before
    asked(keeper, "change 1")
    later = asked(keeper, "sum")
    slept(keeper)
    for snapshot in (second, first):
        with contextlib.suppress(InUseError):  # the sandbox stands on its disk
            Snapshots.delete(snapshot.snapshot_id)
    assert asked(keeper, "sum") == later


def test_a_killed_supervisor_loses_and_leaves_nothing(keeper: Sandbox, home: Path) -> None:
    slept(keeper)
    before = asked(keeper, "sum")
    own = home / "sandboxes" / keeper.id
    assert len(list(own.glob("pages-*"))) == 1
    os.kill(cast(Hello, Supervisor.hello()).pid, signal.SIGKILL)
    assert asked(keeper, "sum") == before
    assert len(list(own.glob("pages-*"))) == 1
    assert own_bytes(slept(keeper)) < REST_BYTES
    assert asked(keeper, "sum") == before
    keeper.suspend()
    until(lambda: not list(own.glob("pages-*")))


def test_a_damaged_file_of_before_is_noticed(keeper: Sandbox) -> None:
    slept(keeper)
    assert keeper.exec(["true"]).exit_code == 0
    (earlier,) = referred(slept(keeper))
    with earlier.open("r+b") as file:
        file.seek(earlier.stat().st_size // 2)
        file.write(b"damaged")
    with pytest.raises(DamagedError):
        keeper.exec(["true"])
