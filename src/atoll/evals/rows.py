"""Rows of results, and summaries of several rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from atoll.errors import InvalidSpecError

Status = Literal["passed", "failed", "error", "timeout", "stopped", "skipped"]
"""How a run ended. A budget or ``within_s`` cut ``stopped`` runs off, and kept ``skipped`` ones from starting."""

_FINISHED = ("passed", "failed", "error", "timeout")
# 95 % of a normal distribution
_Z = 1.96


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A run of a strategy.

    Args:
        strategy: Its name.
        repeat: The number of the repeat, from 0.
        status: How it ended.
        start_hash: The digest of the memory and disk that it began from: ``Snapshots.digest``.
        score: The number that the task returned; None if it returned none.
        value: The task's result, as JSON has it.
        error: Why it did not pass; None if it passed.
        output: The end of the output of the program that the task returned or that failed. Otherwise the end
            of the sandbox's log, for runs that did not pass.
        wall_s: How long the task took, in seconds.
        cpu_s: The processor time of its sandbox in seconds; None where the host cannot tell.
        cost: The task's charges.
        sandbox_id: The fork that it ran in.
        started_at: When the task began, in Unix seconds.
        kept: Whether the fork still exists, asleep.
    """

    strategy: str
    repeat: int
    status: Status
    start_hash: str
    score: float | None = None
    value: Any = None
    error: str | None = None
    output: str = ""
    wall_s: float = 0.0
    cpu_s: float | None = None
    cost: float = 0.0
    sandbox_id: str | None = None
    started_at: float = 0.0
    kept: bool = False

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, so that it is not run again."""
        return self.status in _FINISHED


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The summary of a strategy's runs.

    ``runs`` counts the runs that came to their end, and ``passed`` those of them that passed. ``pass_low``
    and ``pass_high`` are the 95 % interval of the pass rate (Wilson's). The scores are those of all runs with
    a score; without any, ``mean`` and the like are None.
    """

    strategy: str
    runs: int
    passed: int
    pass_rate: float | None
    pass_low: float | None
    pass_high: float | None
    mean: float | None
    median: float | None
    least: float | None
    most: float | None
    mean_wall_s: float | None
    cost: float

    def pass_at(self, k: int) -> float:
        """Return an unbiased estimate of the chance that at least one of ``k`` runs passes.

        Raises:
            InvalidSpecError: ``k`` is not between 1 and the number of runs.
        """
        if not 1 <= k <= self.runs:
            raise InvalidSpecError(f"k is {k!r}", hint=f"give 1 to {self.runs}, the number of runs")
        return 1 - math.comb(self.runs - self.passed, k) / math.comb(self.runs, k)


def summary_of(strategy: str, rows: Sequence[Row]) -> Summary:
    """Return the summary of a strategy's rows."""
    finished = [row for row in rows if row.finished]
    runs, passed = len(finished), sum(row.status == "passed" for row in finished)
    scores = [row.score for row in finished if row.score is not None]
    low, high = _wilson(passed, runs) if runs else (None, None)
    return Summary(
        strategy=strategy,
        runs=runs,
        passed=passed,
        pass_rate=passed / runs if runs else None,
        pass_low=low,
        pass_high=high,
        mean=statistics.fmean(scores) if scores else None,
        median=statistics.median(scores) if scores else None,
        least=min(scores, default=None),
        most=max(scores, default=None),
        mean_wall_s=statistics.fmean(row.wall_s for row in finished) if finished else None,
        cost=math.fsum(row.cost for row in rows),
    )


def best_of(rows: Iterable[Row], *, lowest: bool = False) -> Row | None:
    """Return the passed row with the best score, the first of equal ones. No score is the worst score."""
    worst = math.inf if lowest else -math.inf
    passed = [row for row in rows if row.status == "passed"]

    def rank(row: Row) -> float:
        return worst if row.score is None else row.score

    return (min if lowest else max)(passed, key=rank, default=None)


def _wilson(passed: int, runs: int) -> tuple[float, float]:
    rate, spread = passed / runs, _Z * _Z / runs
    middle = (rate + spread / 2) / (1 + spread)
    half = math.sqrt(rate * (1 - rate) * spread + spread * spread / 4) / (1 + spread)
    return max(0.0, middle - half), min(1.0, middle + half)
