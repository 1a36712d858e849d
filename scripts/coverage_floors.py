"""Runs the unit tests of the rooms without host effects, and fails if they cover less than the rooms' floors.

The floors are in pyproject.toml, in percent of lines and branches together.
"""

from __future__ import annotations

import os
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path

import coverage
import pytest

ROOT = Path(__file__).resolve().parents[1]
# The tests of these rooms. All others run without being measured, which would take twice their time.
TESTS = tuple(
    f"tests/unit/{name}"
    for name in (
        "engines",
        "guest",
        "images",
        "network",
        "policy",
        "protocol",
        "server",
        "snapshots",
        "types",
        "test_errors.py",
        "test_exit_codes.py",
    )
)


def floors() -> dict[str, int]:
    """The floor of each room or module, by its name."""
    found: dict[str, int] = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["atoll"]["coverage"]
    return found


def pattern(room: str) -> str:
    """The files of a room, or the one of a module."""
    path = ROOT / "src" / room.replace(".", "/")
    if path.is_dir():
        return f"{path}/*"
    if path.with_suffix(".py").is_file():
        return str(path.with_suffix(".py"))
    raise SystemExit(f"coverage: there is no {room}, which pyproject.toml names")


def measured(data: coverage.Coverage, room: str) -> float:
    """The percentage that is covered of a room's files."""
    with open(os.devnull, "w") as nowhere:
        return data.report(include=[pattern(room)], file=nowhere)


def below(found: Mapping[str, float]) -> list[str]:
    """The rooms that are covered less than their floor."""
    return [room for room, floor in floors().items() if found[room] < floor]


def main() -> int:
    """Print the table, and return 1 if a room is below its floor."""
    data = coverage.Coverage(
        data_file=None, branch=True, include=[pattern(room) for room in floors()], config_file=False
    )
    data.start()
    failed = pytest.main([*(str(ROOT / each) for each in TESTS), "--quiet", "-p", "no:cacheprovider"])
    data.stop()
    if failed:
        return int(failed)
    found = {room: measured(data, room) for room in floors()}
    print(f"{'covered by unit tests':<34}     %  floor")
    for room, floor in floors().items():
        print(f"{room:<34} {found[room]:5.1f}  {floor:5}{'  BELOW' if found[room] < floor else ''}")
    if low := below(found):
        print(f"coverage: below its floor: {', '.join(low)}; write the missing tests")
    return 1 if low else 0


if __name__ == "__main__":
    sys.exit(main())
