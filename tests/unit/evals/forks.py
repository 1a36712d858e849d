"""Forks that are only counted, and evaluations that run in them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

from atoll.errors import NoSpaceError
from atoll.evals import Evaluation, Results
from atoll.evals.forks import Forks
from atoll.evals.journal import Header, Journal, request_digest
from atoll.evals.runs import Runs
from atoll.sdk import AsyncSandbox


class Fork:
    """As much of a sandbox as an evaluation itself uses."""

    def __init__(self, id: str) -> None:
        self.id = id

    def close(self) -> None:
        pass


class CountedForks(Forks):
    """Forks without a supervisor.

    Args:
        unmade: The numbers of those that cannot be made.
    """

    def __init__(self, *unmade: int) -> None:
        super().__init__("e1")
        self.alive: set[str] = set()
        self.most = 0
        self.made = 0
        self.asleep: set[str] = set()
        self.deleted: list[str] = []
        self._unmade = unmade

    async def capacity(self, snapshot_id: str) -> int:
        return 2

    async def make(self, snapshot_id: str, lease_s: float) -> AsyncSandbox:
        self.made += 1
        if self.made in self._unmade:
            raise NoSpaceError("the disk is full")
        fork = Fork(f"fork{self.made}")
        self.alive.add(fork.id)
        self.most = max(self.most, len(self.alive))
        return cast(AsyncSandbox, fork)

    async def cpu_s(self, fork: AsyncSandbox) -> float | None:
        return 0.5

    async def log(self, fork: AsyncSandbox) -> str:
        return "its log"

    async def keep(self, fork: AsyncSandbox) -> bool:
        self.asleep.add(fork.id)
        return True

    async def kill(self, sandbox_id: str) -> None:
        self.alive.discard(sandbox_id)
        self.asleep.discard(sandbox_id)

    async def living(self) -> list[str]:
        return sorted(self.alive)

    async def delete(self, snapshot_id: str) -> None:
        self.deleted.append(snapshot_id)


@contextlib.contextmanager
def journal_of(evaluation: Evaluation, path: Path | None = None) -> Iterator[tuple[Header, Journal]]:
    """The journal of an evaluation of a snapshot that it has made itself."""
    with Journal(path) as journal:
        header = journal.header
        if header is None:
            header = Header(
                evaluation="e1",
                snapshot_id="s1",
                start_hash="hash",
                request=request_digest(evaluation.strategies, evaluation.code),
                own_snapshot=True,
                strategies=list(evaluation.strategies),
            )
            journal.begin(header)
        yield header, journal


async def results_of(forks: Forks, evaluation: Evaluation, path: Path | None = None) -> Results:
    """Run an evaluation in such forks."""
    with journal_of(evaluation, path) as (header, journal):
        return await Runs(evaluation, header, journal, forks).all()


def numbers(count: int) -> dict[str, Any]:
    """So many strategies: the numbers from 0, by name."""
    return {f"n{number}": number for number in range(count)}
