"""The server faces strangers, so it has no rights to lose; what takes rights another process does for it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from atoll import Supervisor
from tests.e2e.server import Server

pytestmark = pytest.mark.twice

BOUND_S = 60.0


def status_of(pid: int) -> dict[str, str]:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture(scope="module", autouse=True)
def answering(server: Server) -> None:
    """It tells where it listens while it still may; it gives up its rights before it answers."""
    assert httpx.get(f"{server.url}/health", timeout=BOUND_S).status_code == 200


def test_the_server_has_no_rights_and_can_get_none(server: Server) -> None:
    for thread in Path(f"/proc/{server.process.pid}/task").iterdir():
        try:
            status = status_of(int(thread.name))
        except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
            continue
        assert {status[name] for name in ("CapPrm", "CapEff", "CapInh", "CapAmb")} == {"0" * 16}
        assert status["NoNewPrivs"] == "1"


def test_root_s_server_writes_nowhere_but_in_its_own_directory(server: Server, module_home: Path) -> None:
    pid = server.process.pid
    if os.geteuid() != 0:
        assert status_of(pid)["Uid"].split() == [str(os.geteuid())] * 4
        return
    seen = Path(f"/proc/{pid}/root")
    for place in ("/etc", "/tmp", "/dev/shm", str(module_home), str(module_home / "bin")):
        with pytest.raises(OSError, match="Read-only file system"):
            (seen / place[1:] / "planted").write_text("")
    for setting in ("proc/sys/kernel/core_pattern", "proc/sys/kernel/hostname"):
        with pytest.raises(OSError, match="Read-only file system"):
            (seen / setting).open("r+").close()
    with pytest.raises(PermissionError):
        (seen / "dev/null").open("r+b", buffering=0).close()
    own = seen / str(module_home / "server")[1:] / "own"
    own.write_text("")
    own.unlink()


def test_a_supervisor_that_was_killed_is_started_again_with_its_own_rights(server: Server) -> None:
    before = Supervisor.hello()
    assert before is not None
    rights = status_of(before.pid)["CapEff"]
    os.kill(before.pid, signal.SIGKILL)
    asked = {"x-api-key": server.key}
    deadline = time.monotonic() + BOUND_S
    while httpx.get(f"{server.url}/v2/sandboxes", headers=asked, timeout=BOUND_S).status_code != 200:
        assert time.monotonic() < deadline
    after = Supervisor.hello()
    assert after is not None
    assert after.pid != before.pid
    assert status_of(after.pid)["CapEff"] == rights


def test_the_secret_and_the_log_are_for_their_owner_alone(server: Server, module_home: Path) -> None:
    del server
    for name in ("secret", "access.log"):
        assert (module_home / "server" / name).stat().st_mode & 0o077 == 0
