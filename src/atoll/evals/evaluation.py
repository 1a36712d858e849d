"""Defines and runs evaluations."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal, TypeAlias, get_args

import anyio

from atoll.errors import InvalidSpecError
from atoll.evals.forks import Forks, State
from atoll.evals.journal import Header, Journal, request_digest
from atoll.evals.results import Results
from atoll.evals.rows import Row
from atoll.evals.runs import Runs
from atoll.types import SnapshotInfo
from atoll.types.internal import check_choice, check_number, check_text

Task: TypeAlias = Callable[[Any, Any], Any]
Keep = Literal["best", "failed"]
"""The forks to keep, asleep: the best row's, or those of all rows that did not pass."""

_LEAST_S = 0.001
_RUNS_MOST = 1_000_000


@dataclass(frozen=True)
class Evaluation:
    """Runs a task for each strategy, each time in a fork of the very same state.

    Args:
        state: A snapshot, or a sandbox. The evaluation takes a snapshot of a sandbox, and deletes it at the
            end.
        strategies: The values to compare, by name. They may be anything that JSON has, such as settings of a
            model.
        task: Called with a fork and a strategy's value. A function gets a ``Sandbox`` and runs in a thread of its
            own; a coroutine function gets an ``AsyncSandbox``. A number that it returns is the score. False, an
            ``ExecResult`` with another exit code than 0, and a failed check or assertion are failures. A
            mapping may have ``score`` and ``passed``. Any other JSON value is kept.
        repeats: How often each strategy runs.
        at_once: How many forks exist at a time. None takes as many as this host's processors and memory
            allow.
        timeout_s: Seconds that a task may take before its fork is killed.
        within_s: Seconds that the evaluation may take. After them, current runs are stopped, and no further
            run starts.
        budget: The most that all tasks together may ``charge``. Once it is spent, current runs are stopped,
            and no further run starts.
        keep: The forks to keep, asleep and without a lease; None keeps none.
        journal: A file to which each row is written as its run ends. If the file exists, the evaluation goes
            on where it stopped, and does not repeat ended runs.
        code: A text that names the version of the task. A journal of another version is refused.
        on_row: Called with each row as its run ends. None shows a line of progress if standard error is a
            terminal and ``ATOLL_PROGRESS`` is not ``off``.

    Raises:
        InvalidSpecError: An argument is invalid.
    """

    state: State
    strategies: Mapping[str, Any]
    task: Task
    _: KW_ONLY
    repeats: int = 1
    at_once: int | None = None
    timeout_s: float = 600.0
    within_s: float | None = None
    budget: float | None = None
    keep: Keep | None = None
    journal: str | os.PathLike[str] | None = None
    code: str = ""
    on_row: Callable[[Row], object] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.strategies, Mapping) or not self.strategies:
            raise InvalidSpecError("there are no strategies", hint="give a mapping of names to values")
        for name in self.strategies:
            check_text("the name of a strategy", name)
        if not callable(self.task):
            raise InvalidSpecError(
                f"task is {self.task!r}"[:300], hint="give a function of a sandbox and a strategy"
            )
        most = _RUNS_MOST // len(self.strategies)
        check_number("repeats", self.repeats, least=1, most=most, whole=True, hint=f"give 1 to {most:,}")
        if self.at_once is not None:
            check_number("at_once", self.at_once, least=1, whole=True, hint="give 1 or more, or None")
        for what in ("timeout_s", "within_s", "budget"):
            value = getattr(self, what)
            if value is not None or what == "timeout_s":
                check_number(what, value, least=_LEAST_S, most=1e8, hint="give more than 0")
        if self.keep is not None:
            check_choice("keep", self.keep, get_args(Keep))
        check_text("code", self.code)
        try:
            request_digest(self.strategies, self.code)
        except (TypeError, ValueError, OverflowError, RecursionError) as error:
            raise InvalidSpecError(
                f"a strategy is no JSON value: {error}", hint="give numbers, texts, lists and dicts"
            )

    def run(self) -> Results:
        """Do the missing runs, wait for them, and return all results.

        An interruption (Ctrl-C) leaves no fork. With a journal, the same call goes on later.

        Raises:
            InvalidSpecError: The journal is of another state, other strategies or other ``code``. Or an event
                loop runs in this thread: await ``run_async`` there.
            InUseError: Another process writes the journal.
            DamagedError: The file is no journal, or the snapshot cannot be read.
            SnapshotNotFoundError: The snapshot does not exist (any more).
            AtollError: A sandbox as the state could not be snapshotted.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return anyio.run(self.run_async)
        raise InvalidSpecError("an event loop runs in this thread", hint="await run_async() instead")

    async def run_async(self) -> Results:
        """Do the work of ``run`` without blocking the event loop. Cancelling it leaves no fork."""
        with Journal(self.journal) as journal:
            forks = Forks(journal.header.evaluation if journal.header else secrets.token_hex(6))
            header = await self._header(journal, forks)
            return await Runs(self, header, journal, forks).all()

    async def _header(self, journal: Journal, forks: Forks) -> Header:
        """Return this evaluation's header in the journal. A new journal gets one."""
        request = request_digest(self.strategies, self.code)
        if journal.header is None:
            start = await forks.start(self.state)
            header = Header(
                evaluation=forks.evaluation,
                snapshot_id=start.snapshot_id,
                start_hash=start.start_hash,
                request=request,
                own_snapshot=start.own,
                strategies=list(self.strategies),
            )
            journal.begin(header)
            return header
        header = journal.header
        if header.request != request:
            raise self._foreign("other strategies or other code")
        if isinstance(self.state, (str, SnapshotInfo)):
            if (await forks.snapshot(self.state)).snapshot_id != header.snapshot_id:
                raise self._foreign("another state")
        elif not header.own_snapshot:
            raise self._foreign("another state")
        return header

    def _foreign(self, what: str) -> InvalidSpecError:
        return InvalidSpecError(
            f"the journal {self.journal} is of {what}", hint="give another path, or remove it"
        )
