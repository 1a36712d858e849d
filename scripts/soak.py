"""Runs what takes too long for `make test`, in parts of at most an hour each: `make soak`, `make soak ONLY=PART`.

A part that fails does not stop the others. At the end a table says how each ended and how long it took.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PYTHON = sys.executable
PYTEST = str(Path(sys.executable).with_name("pytest"))
# The commands of each part, and what it does.
PARTS: dict[str, tuple[str, Sequence[str]]] = {
    "crash": ("crashes at random moments", (PYTHON, "-m", "tests.crash")),
    "unattended": (
        "crashes of sandboxes that nobody uses",
        (PYTHON, "-m", "tests.crash", "--unattended", "--rounds", "250"),
    ),
    "points": ("a crash at every step of every operation", (PYTHON, "-m", "tests.crash.points")),
    "churn": (
        "sandboxes that come and go",
        (PYTHON, "-m", "tests.churn", "--seconds", "3000", "--live", "50"),
    ),
    "pages": (
        "memory that is written and read back over sleeps",
        (PYTHON, "-m", "tests.churn.pages", "--seconds", "3000", "--live", "4"),
    ),
    "compat": ("a hundred real programs", (PYTHON, "-m", "tests.compat")),
    "code": ("all languages and libraries of the code interpreter", (PYTEST, "tests/compat/soak_code.py")),
    "sdks": ("all cases of E2B's SDKs over TLS", (PYTEST, "tests/sdks/soak_tls.py")),
    "clients": (
        "real programs behind policies, also those that take minutes to install",
        ("env", "ATOLL_TEST_WHOLE=1", PYTEST, "tests/e2e/test_sdk_clients.py"),
    ),
    "models": ("the libraries and agents of model providers", (PYTEST, "tests/e2e/soak_models.py")),
    "egress": ("policies at random on the wire", (PYTHON, "-m", "tests.security.egress", "--minutes", "10")),
    "calls": (
        "file and mount calls at random, which no kernel may die of",
        (PYTHON, "-m", "tests.security.kernel_calls", "--minutes", "10"),
    ),
    "memory": ("guests that fill the host's memory, beside a small one", (PYTHON, "-m", "bench.shortage")),
    "fuzz": ("each fuzz target for a minute", (PYTHON, "scripts/fuzz.py", "--seconds", "60")),
}


def main() -> int:
    parser = argparse.ArgumentParser(
        description="\n".join(f"{name:<12}{what}" for name, (what, _) in PARTS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("part", nargs="?", choices=[*PARTS], metavar="PART", help="all without one")
    part = parser.parse_args().part
    wanted = [part] if part else list(PARTS)
    ended = []
    for name in wanted:
        what, command = PARTS[name]
        print(f"== {name}: {what}", flush=True)
        began = time.monotonic()
        status = subprocess.run(command, cwd=ROOT, check=False).returncode
        ended.append((name, status, time.monotonic() - began))
        print(f"== {name}: {'passed' if status == 0 else 'FAILED'}", flush=True)
    print(f"\n{'part':<12} minutes")
    for name, status, took_s in ended:
        print(f"{name:<12} {took_s / 60:7.1f}{'  FAILED' if status else ''}")
    return 1 if any(status for _, status, _ in ended) else 0


if __name__ == "__main__":
    sys.exit(main())
