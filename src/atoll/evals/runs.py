"""Runs an evaluation: a bounded number of forks at a time, each with its own bound."""

from __future__ import annotations

import contextlib
import inspect
import math
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup
from anyio.from_thread import BlockingPortal

from atoll.errors import AtollError
from atoll.evals.charging import Account, Budget, account
from atoll.evals.forks import Forks
from atoll.evals.journal import Header, Journal, latest
from atoll.evals.outcome import Outcome, failure_of, outcome_of
from atoll.evals.progress import rows_shown
from atoll.evals.results import Results
from atoll.evals.rows import Row, best_of
from atoll.evals.threads import in_thread
from atoll.sdk import AsyncSandbox, Sandbox
from atoll.types import SandboxInfo
from atoll.types.internal import from_json

if TYPE_CHECKING:
    from atoll.evals.evaluation import Evaluation

_Key: TypeAlias = tuple[str, int]
# how much longer than its task a fork may live
_LEASE_MORE_S = 300.0


class Runs:
    """The runs of one evaluation.

    Args:
        evaluation: The evaluation to run.
        header: Names the state that they begin from.
        journal: Has the earlier rows, and gets the new ones.
        forks: Makes and ends forks.
    """

    def __init__(self, evaluation: Evaluation, header: Header, journal: Journal, forks: Forks) -> None:
        self._evaluation = evaluation
        self._header = header
        self._journal = journal
        self._forks = forks
        self._keys: list[_Key] = [
            (name, repeat) for repeat in range(evaluation.repeats) for name in evaluation.strategies
        ]
        rows = latest(journal.rows)
        self._rows = {key: rows[key] for key in self._keys if key in rows and rows[key].finished}
        self._kept: set[str] = set()
        spent = math.fsum(row.cost for row in journal.rows)
        self._budget = Budget(evaluation.budget, spent, self._on_spent)
        self._live: dict[Account, anyio.CancelScope] = {}
        self._why_stopped = None if self._budget.left else _OVER_BUDGET
        self._thread = threading.get_ident()
        self._portal: BlockingPortal
        self._on_row: Callable[[Row], object]
        self._values = {name: msgspec.json.encode(value) for name, value in evaluation.strategies.items()}

    async def all(self) -> Results:
        """Do the missing runs, and return all rows."""
        self._kept = await self._swept()
        try:
            todo = [key for key in self._keys if key not in self._rows]
            if todo and self._why_stopped is None:
                with rows_shown(len(self._keys), len(self._rows), self._evaluation.on_row) as self._on_row:
                    async with BlockingPortal() as self._portal:
                        await self._run(todo)
        except BaseException as error:
            await self._undo()
            raise _first(error) from None
        results = self._results()
        if self._header.own_snapshot and all(row.finished for row in results):
            await self._forks.delete(self._header.snapshot_id)
        return results

    async def _swept(self) -> set[str]:
        """Kill the leftover forks of a killed process, and return the ids of the kept forks."""
        living = set(await self._forks.living()) if self._journal.resumed else set()
        kept = living & self._to_keep()
        for sandbox_id in living - kept:
            await self._forks.kill(sandbox_id)
        return kept

    def _to_keep(self) -> set[str]:
        """The forks of the rows so far that ``keep`` wants."""
        rows = list(self._rows.values())
        if self._evaluation.keep == "failed":
            rows = [row for row in rows if row.status != "passed"]
        else:
            best = best_of(rows) if self._evaluation.keep == "best" else None
            rows = [best] if best is not None else []
        return {row.sandbox_id for row in rows if row.sandbox_id is not None}

    async def _run(self, todo: list[_Key]) -> None:
        at_once = self._evaluation.at_once or await self._forks.capacity(self._header.snapshot_id)
        slots = anyio.Semaphore(at_once)
        async with anyio.create_task_group() as watch:
            if self._evaluation.within_s is not None:
                watch.start_soon(self._stop_after, self._evaluation.within_s)
            async with anyio.create_task_group() as runs:
                await self._start_all(todo, slots, runs)
            watch.cancel_scope.cancel()

    async def _start_all(self, todo: list[_Key], slots: anyio.Semaphore, runs: TaskGroup) -> None:
        for key in todo:
            await slots.acquire()
            if self._why_stopped is not None:
                return
            runs.start_soon(self._one, key, slots)

    async def _one(self, key: _Key, slots: anyio.Semaphore) -> None:
        try:
            if self._why_stopped is not None:  # since it was started
                return
            row = await self._ran(*key)
            self._rows[key] = row
            # the disk is slower than the other work of this thread
            await anyio.to_thread.run_sync(self._journal.add, row)
            self._on_row(row)
        finally:
            slots.release()

    async def _ran(self, strategy: str, repeat: int) -> Row:
        """Run one strategy once. Its fork is gone, or kept, when this returns or raises."""
        costs = Account(self._budget)
        row = Row(strategy=strategy, repeat=repeat, status="stopped", start_hash=self._header.start_hash)
        fork: AsyncSandbox | None = None
        scope = anyio.CancelScope()
        self._live[costs] = scope
        began = time.monotonic()
        try:
            outcome = None
            with scope:
                lease_s = self._evaluation.timeout_s + _LEASE_MORE_S
                try:
                    fork = await self._forks.make(self._header.snapshot_id, lease_s)
                except AtollError as error:
                    outcome = failure_of(error)
                if fork is not None:
                    row = msgspec.structs.replace(row, sandbox_id=fork.id, started_at=time.time())
                    began = time.monotonic()
                    outcome = await self._outcome(fork, strategy, costs)
            row = msgspec.structs.replace(row, wall_s=round(time.monotonic() - began, 6))
            costs.close()
            if outcome is None:
                outcome = Outcome(status="stopped", error=self._why_stopped)
            row = _with(row, outcome, costs.cost)
            if fork is not None:
                row, fork = await self._left(row, fork), None
            return row
        finally:
            costs.close()
            del self._live[costs]
            if fork is not None:
                fork.close()
                await self._forks.kill(fork.id)

    async def _outcome(self, fork: AsyncSandbox, strategy: str, costs: Account) -> Outcome:
        """Have the task run, for as long as it may."""
        token = account.set(costs)
        try:
            with anyio.move_on_after(self._evaluation.timeout_s):
                return outcome_of(await self._called(fork, from_json(self._values[strategy])))
            return Outcome(status="timeout", error=f"it took longer than {self._evaluation.timeout_s:g} s")
        except (Exception, SystemExit) as error:
            return failure_of(error)
        finally:
            account.reset(token)

    async def _called(self, fork: AsyncSandbox, value: Any) -> Any:
        task = self._evaluation.task
        if inspect.iscoroutinefunction(task) or inspect.iscoroutinefunction(getattr(task, "__call__", None)):  # noqa: B004
            return await task(fork, value)
        return await in_thread(self._portal, _called_blocking, task, await fork.info(), value)

    async def _left(self, row: Row, fork: AsyncSandbox) -> Row:
        """Complete a row with facts from its fork, and kill or keep the fork."""
        try:
            row = msgspec.structs.replace(row, cpu_s=await self._forks.cpu_s(fork))
            if row.status != "passed" and not row.output:
                row = msgspec.structs.replace(row, output=await self._forks.log(fork))
            self._rows[row.strategy, row.repeat] = row
            if row.finished and fork.id in self._to_keep() and await self._forks.keep(fork):
                self._kept.add(fork.id)
                await self._kill_outdone()
                return row
        except BaseException:
            self._kept.discard(fork.id)
            fork.close()
            await self._forks.kill(fork.id)
            raise
        fork.close()
        await self._forks.kill(fork.id)
        return row

    async def _kill_outdone(self) -> None:
        """Kill the fork that was the best before."""
        for sandbox_id in self._kept - self._to_keep():
            self._kept.discard(sandbox_id)
            await self._forks.kill(sandbox_id)

    async def _stop_after(self, seconds: float) -> None:
        await anyio.sleep(seconds)
        self._stop(f"all runs together took longer than {seconds:g} s")

    def _on_spent(self, by: Account, at_last: bool) -> None:
        """Stop all runs. The run that has spent the last of the budget stops only if it charges again."""
        if threading.get_ident() == self._thread:
            self._stop(_OVER_BUDGET, by if at_last else None)
        else:
            self._portal.start_task_soon(self._stop, _OVER_BUDGET, by if at_last else None)

    def _stop(self, why: str, spared: Account | None = None) -> None:
        """Stop all runs, and start no further ones."""
        self._why_stopped = self._why_stopped or why
        for costs, scope in self._live.items():
            if costs is not spared:
                scope.cancel()

    async def _undo(self) -> None:
        """Remove everything that the same evaluation cannot go on with."""
        for sandbox_id in self._kept:
            await self._forks.kill(sandbox_id)
        if self._header.own_snapshot and not self._journal.lasting:
            await self._forks.delete(self._header.snapshot_id)

    def _results(self) -> Results:
        order = {name: number for number, name in enumerate(self._header.strategies)}
        rows = []
        for strategy, repeat in sorted(self._keys, key=lambda key: (order[key[0]], key[1])):
            row = self._rows.get((strategy, repeat)) or Row(
                strategy=strategy,
                repeat=repeat,
                status="skipped",
                start_hash=self._header.start_hash,
                error=self._why_stopped,
            )
            rows.append(msgspec.structs.replace(row, kept=row.sandbox_id in self._kept))
        return Results(rows, evaluation=self._header.evaluation)


_OVER_BUDGET = "the budget is spent"


def _with(row: Row, outcome: Outcome, cost: float) -> Row:
    return msgspec.structs.replace(
        row,
        status=outcome.status,
        score=outcome.score,
        value=outcome.value,
        error=outcome.error,
        output=outcome.output,
        cost=cost,
    )


def _called_blocking(task: Callable[[Any, Any], Any], info: SandboxInfo, value: Any) -> Any:
    """Call a task. Its sandbox is closed when it ends, and not when nobody waits for it any more."""
    with contextlib.closing(Sandbox.of(info)) as sandbox:
        return task(sandbox, value)


def _first(error: BaseException) -> BaseException:
    """Return the one error of a group that a caller can do something about."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
