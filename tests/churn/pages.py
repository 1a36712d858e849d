"""``python -m tests.churn.pages``: programs that know their memory sleep, are copied and go back, and find all of it.

Each of some workers has a sandbox with `page_keeper.py` and does at random what keeps memory: live snapshots, forks,
suspends, wakes and rollbacks, often before the last one has been read. Then it asks the program what it found.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import secrets
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from atoll import AtollError, Limits, Sandbox, Snapshots
from atoll.errors import InUseError
from tests import homes
from tests.churn import page_keeper
from tests.churn.telling import telling

_MIB = 48
_KEPT_MOST = 6
_ANSWER_S = 120.0
_PAUSES_S = (0.0, 0.0, 0.01, 0.05, 0.3)


class Worker:
    """One sandbox at a time, and what is done with it.

    Args:
        seed: Of everything that is left to chance.
        done: Counts what was done.
    """

    def __init__(self, seed: int, done: Counter[str]) -> None:
        self._dice = random.Random(seed)
        self._done = done
        self._kept: list[str] = []
        self._strange: list[str] = []
        self._sandbox = Sandbox.create(limits=Limits(memory_mib=512))
        self._sandbox.files.write("page_keeper.py", Path(page_keeper.__file__).read_text())
        self._sandbox.processes.start(["python3", "page_keeper.py", str(_MIB), str(seed)], stream=False)

    def work(self, until_s: float) -> None:
        """Do things at random until that moment of the monotonic clock."""
        actions = [
            self._ask,
            self._suspend,
            self._wake,
            self._snapshot,
            self._roll_back,
            self._fork,
            self._look,
        ]
        while time.monotonic() < until_s:
            action = self._dice.choices(actions, (3, 4, 2, 3, 4, 2, 1))[0]
            name = action.__name__.strip("_")
            try:
                action()
            except AtollError as error:
                raise AssertionError(f"{name} of {self._sandbox.id}: {error.code}: {error}") from error
            self._done[name] += 1
            time.sleep(self._dice.choice(_PAUSES_S))
        self._ask()

    def end(self) -> None:
        """Kill the sandbox and forget its snapshots."""
        self._sandbox.kill()
        self._sandbox.close()
        while left := self._kept + self._strange:
            self._forget(left)

    def _ask(self) -> None:
        asked(self._sandbox)

    def _suspend(self) -> None:
        self._sandbox.suspend()

    def _wake(self) -> None:
        self._sandbox.resume()

    def _look(self) -> None:
        self._sandbox.exec(["true"]).check()

    def _snapshot(self) -> None:
        self._kept.append(self._sandbox.snapshot().snapshot_id)
        if len(self._kept) > _KEPT_MOST:
            self._forget(self._dice.sample(self._kept, 2) + self._strange)

    def _forget(self, snapshots: list[str]) -> None:
        for snapshot in snapshots:
            with contextlib.suppress(InUseError):  # another one stands on it
                Snapshots.delete(snapshot)
                self._kept = [one for one in self._kept if one != snapshot]
                self._strange = [one for one in self._strange if one != snapshot]

    def _roll_back(self) -> None:
        if self._kept:
            self._sandbox.rollback(self._dice.choice(self._kept))

    def _fork(self) -> None:
        (fork,) = self._sandbox.fork()
        if self._dice.random() < 0.5:
            with fork:
                asked(fork)
                fork.kill()
            return
        # It goes back to its own snapshots, and to those of before the fork.
        self._strange, self._kept = self._strange + self._kept, []
        before, self._sandbox = self._sandbox, fork
        asked(before)
        before.kill()
        before.close()


def asked(sandbox: Sandbox) -> None:
    """Ask the program for all of its memory, which must be as it knows it."""
    with contextlib.suppress(AtollError):
        sandbox.files.delete("answer")
    sandbox.files.write("ask", "")
    end = time.monotonic() + _ANSWER_S
    while not sandbox.files.exists("answer"):
        assert time.monotonic() < end, f"the program in {sandbox.id} has gone: {faults(sandbox)}"
        time.sleep(0.02)
    assert sandbox.files.read("answer").split()[0] == "0", f"{sandbox.id}: {faults(sandbox)}"


def faults(sandbox: Sandbox) -> str:
    """What the program has found, and which programs run."""
    found = sandbox.files.read("faults") if sandbox.files.exists("faults") else "no faults told"
    return f"{found}\n{sandbox.exec(['ps', 'aux']).stdout}"


def play(seconds: float, live: int, seed: int) -> None:
    """Let so many workers work for so long.

    Raises:
        AssertionError: A page had something else than was written to it, or a call failed; the message says which.
    """
    sys.stdout.write(f"pages of {live} sandboxes for {seconds:.0f} s with seed {seed}\n")
    done: Counter[str] = Counter()

    def tell() -> None:
        sys.stdout.write(f"{dict(done)}\n")
        sys.stdout.flush()

    with homes.make_home("cp-"), ThreadPoolExecutor(live) as threads, telling(tell):
        workers = [Worker(seed + number, done) for number in range(live)]
        until_s = time.monotonic() + seconds
        for one in [threads.submit(worker.work, until_s) for worker in workers]:
            one.result()
        for worker in workers:
            worker.end()
    sys.stdout.write(f"{dict(done)}: every page was as it was written\n")


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.churn.pages", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--live", type=int, default=4, help="how many sandboxes there are at a time")
    parser.add_argument("--seed", type=int, default=secrets.randbelow(10**6))
    wanted = parser.parse_args()
    play(wanted.seconds, wanted.live, wanted.seed)


if __name__ == "__main__":
    main()
