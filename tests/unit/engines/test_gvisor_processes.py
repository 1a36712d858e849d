"""The host processes of a machine."""

from __future__ import annotations

import asyncio
import contextlib
import os
import resource
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from tests.forked import in_child

from atoll.engines.gvisor import processes
from atoll.engines.gvisor.processes import HostProcess


def test_a_process_is_looked_at_in_a_supervisor_of_many_sandboxes_too() -> None:
    """Ten descriptors a sandbox: a hundred of them are more than select(2) takes."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if most < 1200:
        pytest.fail("this host allows no process 1,200 open files")
    assert in_child(looked_at) == ""


def looked_at() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (1200, 1200))
    with contextlib.ExitStack() as held:
        for _ in range(1100):
            held.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        child = subprocess.Popen(["sleep", "600"])
        process = HostProcess.find(child.pid)
        assert process is not None and not process.has_ended
        process.kill()
        child.wait()
        assert process.has_ended
        process.close()
        assert process.has_ended


def test_a_process_that_begins_another_program_is_not_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "_PROC", tmp_path)
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text("Seccomp:\t2\nSeccomp_filters:\t1\n")
    # One that begins a program, a thread of the kernel, one of a guest, and a runsc that executes itself again.
    for pid, name, filters in (("10", "sh", 1), ("11", "kworker", 0), ("12", "exe", 2), ("13", "exe", 1)):
        (tmp_path / pid).mkdir()
        (tmp_path / pid / "status").write_text(f"Seccomp:\t2\nSeccomp_filters:\t{filters}\n")
        (tmp_path / pid / "cmdline").touch()
        (tmp_path / pid / "comm").write_text(f"{name}\n")
        if name != "kworker":
            (tmp_path / pid / "exe").symlink_to("/bin/true")

    def tell() -> None:
        for pid in ("10", "13"):
            (tmp_path / pid / "cmdline").write_bytes(b"runsc\0run\0--bundle=/b\0")

    monkeypatch.setattr(processes, "_LOOKS", 10_000)
    telling = threading.Timer(0.02, tell)
    telling.start()
    assert processes.pids_of(Path("/b")) == {10, 13}
    telling.join()


def test_a_start_is_over_when_a_child_of_its_command_has_its_own_program(tmp_path: Path) -> None:
    """Between fork and exec the sentry has the command line of what starts it, and lives on."""
    forked = "import os, time; time.sleep(0.5); os.execvp('sleep', ['sleep', '600'])"
    child = subprocess.Popen([sys.executable, "-c", forked, "run", f"--bundle={tmp_path}"])
    try:
        asyncio.run(asyncio.wait_for(processes.wait_for_start(tmp_path), 60))
        assert child.poll() is None
    finally:
        child.kill()
        child.wait()
