"""A run of tests that is told to end leaves no home behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests import homes
from tests.waiting import until

from atoll.host import Home

CHECKOUT = Path(__file__).parents[2]
WAITS = """
import os, pathlib, time
from atoll import Sandbox

def test_it(home):
    Sandbox.create()
    pathlib.Path(os.environ["BEGUN"]).write_text(str(home))
    time.sleep(600)
"""


def test_a_run_that_is_told_to_end_stops_the_homes_that_it_has_made(tmp_path: Path) -> None:
    waits, begun = tmp_path / "test_waits.py", tmp_path / "begun"
    waits.write_text(WAITS)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}"]
    argv = [sys.executable, "-m", "pytest", "-q", *options, str(waits)]
    env = {**os.environ, "BEGUN": str(begun), "PYTHONPATH": str(CHECKOUT)}
    env.pop("PYTEST_XDIST_WORKER", None)
    run = subprocess.Popen(argv, cwd=CHECKOUT, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    try:
        until(lambda: begun.exists() and begun.read_text() or run.poll() is not None)
        assert run.poll() is None, run.stdout and run.stdout.read().decode()
        home = Home(Path(begun.read_text()))
        assert homes.processes_of(home)
        run.terminate()
        run.wait(homes.END_S)
    finally:
        run.kill()
        run.communicate()
    assert not home.path.exists() and not homes.processes_of(home)
