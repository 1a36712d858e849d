import re
import subprocess
import sys
from pathlib import Path

import pytest

from atoll import Sandbox, Snapshots

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


@pytest.mark.timeout(900)
def test_the_demo_tells_its_story_to_the_end(home: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "demo.py")], capture_output=True, text=True, timeout=840, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    process = next(line.split()[1] for line in done.stdout.splitlines() if "holds 100 years" in line)
    assert f"process {process} still holds 100 years" in done.stdout
    assert "it dropped in 1898" in done.stdout
    assert "after rollback: 100 years" in done.stdout


@pytest.mark.timeout(900)
def test_the_examples_of_the_readme_do_what_they_say(home: Path) -> None:
    first, said, second = re.findall(r"```(?:python|text)\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert _output(first) == said
    assert _output(second).split("\n\n") == ["42 from copy 0", "42 from copy 1", "42 from copy 2", "0\n"]
    assert (list(Sandbox.list()), Snapshots.list()) == ([], [])


def _output(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=420, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
