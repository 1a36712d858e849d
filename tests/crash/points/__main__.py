"""``python -m tests.crash.points``: have the supervisor die at every point of every operation, or of those named."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.points.trials import OPERATIONS, Trials


def main() -> int:
    """Run from the command line; the exit code is 1 when a point failed."""
    names = sorted({operation for operation, _ in OPERATIONS})
    parser = argparse.ArgumentParser(prog="python -m tests.crash.points", description=__doc__)
    parser.add_argument("operation", nargs="*", help=f"by default all: {', '.join(names)}")
    parser.add_argument("--state", help="only from this state: running, paused or suspended")
    wanted = parser.parse_args()
    if unknown := set(wanted.operation) - set(names):
        parser.error(f"there is no operation {min(unknown)}")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="points-") as scratch:
        trials = Trials(Path(scratch))
        try:
            for operation, state in OPERATIONS:
                if operation in (wanted.operation or names) and wanted.state in (None, state):
                    failed += _play(trials, operation, state)
        finally:
            trials.close()
    return 1 if failed else 0


def _play(trials: Trials, operation: str, state: str) -> int:
    began_s, told = time.monotonic(), 0
    for outcome in trials.all_of(operation, state):
        for failure in outcome.failures[told:]:
            sys.stdout.write(f"point {outcome.tried}: {failure}\n")
        told = len(outcome.failures)
        sys.stdout.flush()
    sys.stdout.write(f"{outcome} in {time.monotonic() - began_s:.0f} s\n")
    sys.stdout.flush()
    return told


if __name__ == "__main__":
    sys.exit(main())
