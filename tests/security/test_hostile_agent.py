"""Sandboxes whose agent lies to the supervisor: it goes on serving, and so do the other sandboxes."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox, Supervisor
from atoll.errors import AtollError, SandboxNotFoundError

EVIL = Path(__file__).with_name("hostile_agent.py")
PATIENCE_S = 120.0
MOST_GROWTH_BYTES = 96 << 20
MODES = ["silent", "slow", "endless", "crumbs", "headers", "interim", "deep", "other", "fault"]


@pytest.fixture(scope="module")
def neighbour(module_home: Path) -> Iterator[Sandbox]:
    """An honest sandbox; whatever is made after it in this home has the evil agent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_POOL_SIZE", "0")
        patch.setenv("ATOLL_AGENT_TIMEOUT_S", "2")
        with Sandbox.create() as sandbox:
            (agent,) = (module_home / "bin").glob("*/atoll-agent")
            os.replace(agent, agent.with_name("honest"))
            agent.write_bytes(EVIL.read_bytes())
            agent.chmod(0o755)
            try:
                yield sandbox
            finally:
                os.replace(agent.with_name("honest"), agent)


@contextlib.contextmanager
def evil(mode: str) -> Iterator[Sandbox]:
    """A sandbox whose agent begins to misbehave as soon as it is made."""
    sandbox = Sandbox.create(env={"EVIL": mode}, network="none")
    try:
        yield sandbox
    finally:
        with contextlib.suppress(SandboxNotFoundError):
            sandbox.kill()
        sandbox.close()


def supervisor_bytes() -> int:
    told = Supervisor.hello()
    assert told is not None
    status = Path(f"/proc/{told.pid}/status").read_text()
    (kib,) = (line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
    return int(kib) * 1024


@pytest.mark.parametrize("mode", MODES)
def test_no_operation_hangs_or_harms_others(neighbour: Sandbox, mode: str) -> None:
    before = supervisor_bytes()
    with evil(mode) as sandbox:
        for operation in (
            sandbox.stats,
            sandbox.info,
            sandbox.pause,
            sandbox.resume,
            sandbox.snapshot,
            sandbox.suspend,
        ):
            with contextlib.suppress(AtollError):
                operation()
            assert neighbour.exec(["echo", "unharmed"]).stdout == "unharmed\n"
        shown = [one for one in Sandbox.list() if one.sandbox_id == sandbox.id]
        assert all("\x1b" not in (one.reason or "") for one in shown)
    assert supervisor_bytes() - before < MOST_GROWTH_BYTES
    with pytest.raises(SandboxNotFoundError):
        Sandbox.get(sandbox.id)


def test_a_copy_that_never_says_that_it_is_ready_is_given_up(neighbour: Sandbox) -> None:
    with evil("endless") as sandbox:
        with pytest.raises(AtollError):
            sandbox.fork(1)
        assert sandbox.info().state == "running"
        assert neighbour.exec(["echo", "unharmed"]).stdout == "unharmed\n"
        assert {one.sandbox_id for one in Sandbox.list()} == {neighbour.id, sandbox.id}


def test_a_flood_of_log_lines_is_bounded_on_the_hosts_disk(neighbour: Sandbox, module_home: Path) -> None:
    with evil("log") as sandbox:
        log = module_home / "sandboxes" / sandbox.id / "console.log"
        end = time.monotonic() + PATIENCE_S
        while log.stat().st_size < 1 << 20:
            assert time.monotonic() < end
            time.sleep(0.05)
        assert neighbour.exec(["echo", "unharmed"]).stdout == "unharmed\n"
        # Reading ends, though the guest writes faster than anybody reads.
        assert len("".join(sandbox.logs())) < 64 << 20
