"""A sandbox that goes on without its memory says so, to whoever uses it next and to whoever looks later."""

from __future__ import annotations

import logging
import time
from pathlib import Path

import pytest
from tests.e2e.command_line import atoll, said
from tests.homes import kill_machines

from atoll import Sandbox


def crash(home: Path, sandbox: Sandbox) -> None:
    kill_machines(home)
    deadline = time.monotonic() + 60
    while sandbox.info().state != "crashed":
        assert time.monotonic() < deadline, "its end is not noticed"
        time.sleep(0.05)


def test_the_next_call_the_info_the_list_and_the_log_tell_of_a_reboot(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with Sandbox.create(name="work", keep=True) as sandbox:
        crash(home, sandbox)
        with caplog.at_level(logging.WARNING, logger="atoll"):
            assert sandbox.run("echo on").stdout == "on\n"
        (record,) = caplog.records
        assert "booted from its disk" in record.message
        caplog.clear()
        sandbox.run("true")
        assert caplog.records == []
        recovered = sandbox.info().recovered
        assert recovered is not None
        assert recovered.how == "disk"
        assert "what was in its memory since is lost" in "".join(sandbox.logs())
        assert "running, recovered" in said("ls")
        assert "booted from its disk" in said("info", "work")
        # The command line wakes it by connecting.
        crash(home, sandbox)
        told = atoll("exec", "work", "--", "echo", "on")
        assert told.stdout == b"on\n"
        assert told.stderr.count(b"booted from its disk") == 1
        sandbox.suspend()
        sandbox.run("true")
        assert "running, recovered" not in said("ls")
        sandbox.kill()
