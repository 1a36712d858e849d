"""`files.search` against `rg -uu` in the same sandbox: both from the SDK's call to the result, by turns."""

from __future__ import annotations

import statistics
import time

from atoll import Sandbox
from bench.measure import Number
from bench.rooms import supervisor

ROUNDS = 20
MOST_RATIO = 1.3
TREE = "/workspace/tree"
FILES = 20_000
WORD = "needle"
MATCHES = 100
MAKE = f"""
import os
for number in range({FILES}):
    at = f"{TREE}/part{{number % 40}}/room{{number // 40 % 25}}"
    os.makedirs(at, exist_ok=True)
    with open(f"{{at}}/file{{number}}.txt", "w") as file:
        file.write(f"line of file {{number}}\\n" * (10 + number % 60))
        if number % ({FILES} // {MATCHES}) == 0:
            file.write("{WORD}\\n")
"""
PATTERNS = {"a word": (WORD, False), "a word in any case": (WORD.upper(), True)}


def numbers() -> list[Number]:
    """Measure. The files are in the host's page cache by then."""
    with supervisor(pool_size=0), Sandbox.create() as sandbox:
        sandbox.exec(["python3", "-c", MAKE], timeout_s=600).check()
        return [against_rg(sandbox, name, *pattern) for name, pattern in PATTERNS.items()]


def against_rg(sandbox: Sandbox, name: str, pattern: str, ignore_case: bool) -> Number:
    """Search for a pattern both ways."""
    argv = ["rg", "-uu", "-n", *(["-i"] if ignore_case else []), pattern, TREE]
    times: tuple[list[float], list[float]] = ([], [])
    for number in range(1 + ROUNDS):  # the first turn warms up
        began = time.perf_counter()
        found = sandbox.files.search(pattern, TREE, ignore_case=ignore_case, hidden=True).matches
        between = time.perf_counter()
        lines = sandbox.exec(argv).check().stdout.splitlines()
        ended = time.perf_counter()
        if len(found) != MATCHES or len(lines) != MATCHES:
            raise SystemExit(f"bench: {len(found)} matches, and {len(lines)} by rg")
        if number:
            times[0].append((between - began) * 1000)
            times[1].append((ended - between) * 1000)
    ours_ms, theirs_ms = map(statistics.median, times)
    return Number(
        name=f"files.search for {name} in {FILES:,} files", measured=ours_ms,
        reference_name="rg -uu inside", reference=theirs_ms, most_ratio=MOST_RATIO,
    )  # fmt: skip
