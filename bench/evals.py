"""An evaluation of 100 forks beside ``fork(100)``: of a process that has imported numpy, each asked and killed."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from atoll import Sandbox, Snapshots
from atoll.evals import Evaluation
from bench.forks import ASKED_AT_ONCE, NUMPY_COPIES, PORT, ask, start_numpy
from bench.measure import Number
from bench.rooms import supervisor

ROUNDS = 2
MOST_RATIO = 1.3


def numbers() -> list[Number]:
    """Measure both in turn, and take the best of each."""
    with supervisor(pool_size=0):
        with Sandbox.create() as sandbox:
            start_numpy(sandbox)
            snapshot = sandbox.snapshot()
            Snapshots.digest(snapshot.snapshot_id)  # read once, by whoever evaluates the snapshot first
            forks_s, evaluation_s = [], []
            for _ in range(ROUNDS):
                forks_s.append(fork_s(sandbox))
                evaluation_s.append(evaluated_s(snapshot.snapshot_id))
            Snapshots.delete(snapshot.snapshot_id)
    return [
        Number(
            name=f"an evaluation of {NUMPY_COPIES} forks of numpy",
            measured=min(evaluation_s),
            unit="s",
            reference_name=f"fork({NUMPY_COPIES}), each asked and killed",
            reference=min(forks_s),
            most_ratio=MOST_RATIO,
        )
    ]


def fork_s(sandbox: Sandbox) -> float:
    """Return the seconds that it takes to fork it, ask each copy, and kill them."""

    def asked(copy: Sandbox) -> None:
        with copy:
            ask(copy, PORT)

    began = time.perf_counter()
    with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
        list(pool.map(asked, sandbox.fork(NUMPY_COPIES)))
    return time.perf_counter() - began


def evaluated_s(snapshot_id: str) -> float:
    """Return the seconds that an evaluation of as many strategies takes, which asks the same."""
    began = time.perf_counter()
    strategies = {f"strategy {number}": number for number in range(NUMPY_COPIES)}
    results = Evaluation(snapshot_id, strategies, answers).run()
    seconds = time.perf_counter() - began
    if any(row.status != "passed" for row in results):
        raise RuntimeError(str(next(row for row in results if row.status != "passed")))
    return seconds


def answers(sandbox: Sandbox, strategy: int) -> bool:
    """Whether the server of a fork answers what it should."""
    ask(sandbox, PORT)
    return True
