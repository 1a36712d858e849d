"""Runs cases where a library is installed that adapters are for."""

from __future__ import annotations

import os
import subprocess
import tomllib
from pathlib import Path

from tests.environments import python_with

ROOT = Path(__file__).parents[2]
CASES = Path(__file__).parent / "cases"
_BOUND_S = 600
# of what was run, when it failed
_SHOWN = 20_000


def run_cases(library: str, *requirements: str, tmp_path: Path) -> None:
    """Run the cases of a library under an interpreter with these packages, beside this checkout of atoll."""
    python = python_with(library, *requirements, *_own_requirements())
    _tell_of_entry_points(tmp_path)
    environ = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("E2B_", "PYTHON"))},
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{tmp_path}",
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    alone = ("-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(CASES), "--confcutdir", str(CASES))
    ran = subprocess.run(
        [
            str(python),
            "-m",
            "pytest",
            "-q",
            "-x",
            *alone,
            *sorted(map(str, CASES.glob(f"cases_{library}*.py"))),
        ],
        cwd=tmp_path,
        env=environ,
        capture_output=True,
        text=True,
        timeout=_BOUND_S,
    )
    assert ran.returncode == 0, f"{ran.stdout[-_SHOWN:]}{ran.stderr[-_SHOWN:]}"


def _project() -> dict[str, object]:
    found: dict[str, object] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def _own_requirements() -> list[str]:
    """What atoll itself needs, and what runs the cases."""
    needed = _project()["dependencies"]
    assert isinstance(needed, list)
    return [*needed, "pytest"]


def _tell_of_entry_points(directory: Path) -> None:
    """Let libraries find atoll's entry points, as when it is installed."""
    points = _project()["entry-points"]
    assert isinstance(points, dict)
    about = directory / "atoll-0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: atoll\nVersion: 0\n")
    lines = [line for group, named in points.items() for line in (f"[{group}]", *_lines(named))]
    (about / "entry_points.txt").write_text("\n".join(lines) + "\n")


def _lines(named: dict[str, str]) -> list[str]:
    return [f"{name} = {value}" for name, value in named.items()]
