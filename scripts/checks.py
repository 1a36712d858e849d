"""Runs the checks of `make check`, two at a time, and says at the end how long each took.

`python scripts/checks.py NAME...` runs only the named ones. A check prints only when it has failed, but for the unit
tests. Each directory with a go.mod is checked; `native` is a module of its own kind: `make native-check`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from coverage_floors import TESTS
from go_modules import STATICCHECK, go_modules

ROOT = Path(__file__).resolve().parents[1]
BIN = Path(sys.executable).parent
PYTHON = str(BIN / "python")
AT_ONCE = 2
# Of a check that failed, the end of a run repeats some lines: these, if there are any.
TELLING = ("--- FAIL", "panic:", "coverage:", "FAILED ", "ERROR ")
NOTED_LINES = 12
NOTED_CHARS = 300
# Which package has what is missing, is in scripts/debian-packages-tests.
NEEDED = ("go", "gofmt", "gcc", "shellcheck", "git")


@dataclass(frozen=True)
class Check:
    """Commands that run one after the other in a directory, until one fails."""

    name: str
    commands: Sequence[Sequence[str]]
    at: Path = ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    tells: bool = False


@dataclass(frozen=True)
class Outcome:
    """What became of a check."""

    check: Check
    passed: bool
    seconds: float
    output: str


def checks() -> list[Check]:
    """All checks, those that take longest first."""
    return [_unit(), *_of_go(), *_of_python(), *_of_scripts()]


def _unit() -> Check:
    # Most of a unit test is waiting. Which tests a worker gets changes nothing: none shares anything with another.
    pytest = [str(BIN / "pytest"), "tests/unit", "tests/style", *(f"--ignore={path}" for path in TESTS)]
    many = ["--numprocesses=4", "--dist=worksteal", "--durations=5", "--quiet"]
    return Check("unit-tests", ([*pytest, *many],), tells=True)


def _of_python() -> list[Check]:
    commands = {
        "covered-tests": ["python", "scripts/coverage_floors.py"],
        "mypy": ["mypy"],
        "public-types": ["python", "scripts/public_types.py"],
        "imports": ["lint-imports"],
        "ruff": ["ruff", "check", "."],
        "ruff-format": ["ruff", "format", "--check", "."],
        "sync-sdk": ["python", "scripts/unasync.py", "--check"],
    }
    return [
        Check(name, ([str(BIN / program), *rest],), tells=name == "covered-tests")
        for name, (program, *rest) in commands.items()
    ]


def _of_go() -> list[Check]:
    static = ("go", "run", STATICCHECK, "./...")
    found = []
    for module in go_modules():
        at, name = ROOT / module, "go" if module == "." else module
        found.append(Check(name, (("go", "vet", "./..."), static), at, {"CGO_ENABLED": "0"}))
        # The race detector needs a C compiler.
        # a test that hangs is not to cost the ten minutes that Go gives it
        test = ("go", "test", "-race", "-timeout", "4m", "./...")
        found.append(Check(f"{name}-tests", (test,), at, {"CGO_ENABLED": "1"}))
    return found


def _of_scripts() -> list[Check]:
    tracked = [ROOT / name for name in _tracked()]
    shell = [str(path) for path in tracked if path.is_file() and _is_shell(path)]
    go = [str(path) for path in tracked if path.suffix == ".go" and path.is_file()]
    return [
        Check("shellcheck", (("shellcheck", "--external-sources", *shell),)),
        Check("gofmt", ((PYTHON, "-c", _NOTHING, "gofmt", "-l", *go),)),
    ]


# gofmt lists what is not formatted, and succeeds.
_NOTHING = """
import subprocess, sys
listed = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE, text=True, check=True).stdout
sys.exit("gofmt: not formatted:\\n" + listed if listed else 0)
"""


def _tracked() -> list[str]:
    listing = ["git", "-c", f"safe.directory={ROOT}", "ls-files", "-co", "--exclude-standard"]
    return subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()


def _is_shell(path: Path) -> bool:
    with path.open("rb") as file:
        words = file.readline(100).split()
    return bool(words) and words[0].startswith(b"#!") and words[-1].endswith((b"/sh", b"/bash", b"bash"))


def run(check: Check) -> Outcome:
    """Run one check and keep what it prints."""
    began = time.monotonic()
    output, passed = "", True
    for command in check.commands:
        done = subprocess.run(
            command,
            cwd=check.at,
            env={**os.environ, **check.env},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
        output += done.stdout
        if done.returncode != 0:
            passed = False
            break
    return Outcome(check, passed, time.monotonic() - began, output)


def report(outcome: Outcome) -> None:
    """Print how a check ended, and what it said if that matters."""
    name = outcome.check.name
    if not outcome.passed or outcome.check.tells:
        print(outcome.output.rstrip())
    print(f"== {name}: {'passed' if outcome.passed else 'FAILED'} in {outcome.seconds:.1f} s", flush=True)


def note(outcome: Outcome) -> None:
    """Add lines for scripts/budget.py that say why a check failed: its failed tests, or else the last that it said."""
    if outcome.passed or "ATOLL_STAGES" not in os.environ:
        return
    said = [" ".join(line.split())[:NOTED_CHARS] for line in outcome.output.splitlines() if line.strip()]
    why = [line for line in said if line.startswith(TELLING)] or said[-NOTED_LINES:]
    stage = os.environ.get("ATOLL_STAGE", "")
    with open(os.environ["ATOLL_STAGES"], "a") as file:
        file.writelines(f"failed\t0\t{stage}\t{outcome.check.name}: {line}\n" for line in why[:NOTED_LINES])


def main() -> int:
    """Run them, and return 1 if one failed."""
    missing = [program for program in NEEDED if shutil.which(program) is None]
    if missing:
        print(f"check: {', '.join(missing)}: not installed; `scripts/deps tests` installs what Debian has")
        return 2
    wanted = sys.argv[1:]
    known = checks()
    names = [check.name for check in known]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        print(f"check: no check is called {', '.join(unknown)}; there are: {', '.join(names)}")
        return 2
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as threads:
        started = [threads.submit(run, check) for check in known if not wanted or check.name in wanted]
        outcomes = []
        for each in as_completed(started):
            outcomes.append(each.result())
            report(outcomes[-1])
            note(outcomes[-1])
    print(f"\n{'check':<22} seconds")
    for outcome in sorted(outcomes, key=lambda each: -each.seconds):
        print(f"{outcome.check.name:<22} {outcome.seconds:7.1f}{'' if outcome.passed else '  FAILED'}")
    print(f"{'all, two at a time':<22} {time.monotonic() - began:7.1f}")
    return 0 if all(outcome.passed for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
