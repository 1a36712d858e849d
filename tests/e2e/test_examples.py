import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


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
