"""Programs go on with their own vector registers, however often they are interrupted."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path

import pytest
from tests.waiting import BOUND_S

from atoll import Sandbox

pytestmark = pytest.mark.skipif(platform.machine() != "x86_64", reason="the program is for x86-64")
SECONDS = 5


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    built = tmp_path_factory.mktemp("registers") / "registers"
    source = Path(__file__).with_name("registers.c")
    subprocess.run(["gcc", "-O1", "-static", "-pthread", "-o", built, source], check=True)
    return built.read_bytes()


def test_no_register_has_what_it_had_earlier_after_pauses(module_home: Path, program: bytes) -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("registers", program)
        sandbox.exec(["chmod", "+x", "registers"]).check()
        running = sandbox.processes.start(["./registers", str(SECONDS)])
        pauses = 0
        while is_running(sandbox, running.pid):
            for _ in range(50):
                sandbox.pause()
                sandbox.resume()
                pauses += 1
        faults, looks = map(int, running.wait(timeout_s=BOUND_S).stdout.split())
        assert looks > 0
        assert faults == 0, f"{faults} of {looks} looks found other registers after {pauses} pauses"


def is_running(sandbox: Sandbox, pid: int) -> bool:
    return any(process.pid == pid for process in sandbox.processes.list())
