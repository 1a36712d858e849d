"""``python -m tests.security.kernel_calls``: file and mount calls at random, which must never end a guest's kernel.

Each round is a program in a sandbox (``file_calls.py``), by turns as an ordinary user and as root, in a user
namespace or, for root, without. After it, the sandbox must still run a command. A failure names the seed to start with.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from pathlib import Path

from atoll import Sandbox
from atoll.errors import AtollError
from tests import homes

PROGRAM = Path(__file__).with_name("file_calls.py")
ROUND_S = 10.0
ANSWER_S = 120.0  # other load may make it slow; a call that locks the kernel up never ends
WAYS = (("user", ()), ("root", ()), ("root", ("--same-users",)))


def rounds(end_s: float, seed: int) -> int:
    """Run rounds until ``end_s``, in a new sandbox for every three, and return how many calls there were."""
    calls = 0
    while time.monotonic() < end_s:
        with Sandbox.create() as sandbox:
            sandbox.files.write("/var/tmp/file_calls.py", PROGRAM.read_bytes(), user="root", mode=0o644)
            for user, options in WAYS:
                command = ["python3", "/var/tmp/file_calls.py", str(seed), str(ROUND_S), *options]
                try:
                    done = sandbox.exec(command, user=user, cwd="/", timeout_s=ROUND_S + ANSWER_S)
                    sandbox.exec(["true"], cwd="/", timeout_s=ANSWER_S).check()
                except AtollError as error:
                    raise SystemExit(f"seed {seed} as {user} {options}: {error}") from error
                counts = [int(line) for line in done.stdout.split() if line.isdigit()]
                sys.stdout.write(f"seed {seed} as {user}: {sum(counts)} calls {done.stderr[-200:]}\n")
                sys.stdout.flush()
                calls += sum(counts)
                seed += 1
    return calls


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.security.kernel_calls", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 20))
    options = parser.parse_args()
    with homes.make_home("ac-"):
        calls = rounds(time.monotonic() + options.minutes * 60, options.seed)
    sys.stdout.write(f"{calls} calls, and every kernel lives\n")


if __name__ == "__main__":
    main()
