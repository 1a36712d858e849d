"""Counts what sandboxes spend on models, on the disk before anything else goes on."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol, TypeVar

from atoll.network import Began, Billed, ModelMessage, Need, Returned
from atoll.policy import DELEGATION_BUDGET
from atoll.supervisor.state.rows import BudgetRow, EdgeRow, ModelUseRow
from atoll.supervisor.tenants import model_budgets
from atoll.supervisor.tenants.model_budgets import Allotment, Amount
from atoll.types import ModelBudget, ModelBudgetUse, ModelUse
from atoll.types.internal import usd_of

SANDBOX_BUDGET = "sandbox:"
# Whoever they are named after does not come again.
_PASSING = (SANDBOX_BUDGET, DELEGATION_BUDGET)
# In percent of a budget's limit: somebody may want to know when so much is spent.
MARKS = (80, 95, 100)
_KEPT_DAYS = 92
_Row = TypeVar("_Row", BudgetRow, ModelUseRow, EdgeRow)
_LedgerRow = BudgetRow | ModelUseRow | EdgeRow


class Store(Protocol):
    """Keeps rows: the database of the home."""

    async def all(self, kind: type[_Row]) -> list[_Row]:
        """All rows of a kind."""

    async def put(self, *rows: _LedgerRow, durable: bool) -> None:
        """Insert or replace rows, all or none."""

    async def delete(self, *rows: _LedgerRow, durable: bool) -> None:
        """Delete rows, all or none."""


@dataclass(frozen=True)
class Loss:
    """What an edge held of a budget when it ended. It counts as spent."""

    budget: str
    amount: Amount


@dataclass(frozen=True)
class Reached:
    """A mark that the spending of a budget has reached.

    Args:
        percent: Of the limit, one of ``MARKS``.
        sandbox_id: The sandbox whose request did that; None if nobody knows.
    """

    budget: str
    percent: int
    sandbox_id: str | None


@dataclass(frozen=True)
class Outcome:
    """What has come of messages of the edge.

    Args:
        allotted: The answers to what it needed, by the ids of the messages.
        settled: The ids of the messages that it need not send again.
        bills: The bills that were counted now, and never before.
        losses: What is gone with an earlier edge.
        reached: The marks that budgets have reached by that, of each budget the highest one of each message.
    """

    allotted: dict[int, tuple[str, Allotment]] = field(default_factory=dict)
    settled: list[int] = field(default_factory=list)
    bills: list[Billed] = field(default_factory=list)
    losses: list[Loss] = field(default_factory=list)
    reached: list[Reached] = field(default_factory=list)


@dataclass(eq=False, repr=False)
class ModelLedger:
    """The budgets for models, and what was used.

    Of each budget, what is spent and what the edge holds never exceeds the limit. Both are on the disk before the
    edge may spend anything. So neither its death nor the supervisor's lets anybody spend more.

    Args:
        clock: Returns Unix seconds.
        team_of: Returns the team of a sandbox; None also for one that is gone.
    """

    store: Store
    clock: Callable[[], float]
    team_of: Callable[[str], str | None] = lambda _: None
    _budgets: dict[str, BudgetRow] = field(default_factory=dict, init=False)
    _uses: dict[str, ModelUseRow] = field(default_factory=dict, init=False)
    _edge: EdgeRow | None = field(default=None, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def load(self, used: Collection[str] | None = None) -> None:
        """Read everything.

        Args:
            used: The budgets of sandboxes and delegations that are still of use. Others of them are deleted. None
                keeps all.
        """
        self._budgets = {row.budget: row for row in await self.store.all(BudgetRow)}
        self._uses = {row.use_key: row for row in await self.store.all(ModelUseRow)}
        self._edge = next(iter(await self.store.all(EdgeRow)), None)
        oldest = self.clock() - _KEPT_DAYS * 86_400
        old: list[BudgetRow | ModelUseRow] = [row for row in self._uses.values() if row.created_at < oldest]
        if used is not None:
            own = (row for row in self._budgets.values() if row.budget.startswith(_PASSING))
            old += [row for row in own if row.budget not in used]
        if old:
            await self.store.delete(*old, durable=False)
            for row in old:
                if isinstance(row, BudgetRow):
                    del self._budgets[row.budget]
                else:
                    del self._uses[row.use_key]

    async def declare(self, limits: Mapping[str, ModelBudget]) -> None:
        """Have budgets with these limits. What is spent of a known one stays spent."""
        async with self._lock:
            now_s, changed = self.clock(), []
            for budget, limit in limits.items():
                known = self._budgets.get(budget)
                if known is None:
                    changed.append(model_budgets.new_budget(budget, limit, now_s))
                elif (row := model_budgets.with_limit(known, limit, now_s)) != known:
                    changed.append(row)
            if changed:
                await self.store.put(*changed, durable=True)
                self._budgets |= {row.budget: row for row in changed}

    async def settle(self, messages: Sequence[ModelMessage]) -> Outcome:
        """Count what the edge has said, in its order. All of it is on the disk when this returns.

        Raises:
            NoSpaceError: The disk is full, and nothing was counted.
            HostError: The database cannot be written, and nothing was counted.
        """
        async with self._lock:
            work = _Settling(self.clock(), self._budgets, self._uses, self._edge, self.team_of)
            for message in messages:
                work.take(message)
            if changed := work.changed():
                await self.store.put(*changed, durable=True)
                self._budgets |= work.budgets
                self._uses |= work.uses
                self._edge = work.edge
            return work.outcome

    def limits_of(self, name: str) -> Allotment | None:
        """The limits of a budget and what is left of it, for the edge; None if there is none."""
        row = self._budgets.get(name)
        return None if row is None else model_budgets.limits_of(model_budgets.current(row, self.clock()))

    def uses(
        self, *, sandbox_id: str | None = None, team: str | None = None, since: str = ""
    ) -> list[ModelUse]:
        """What was used, oldest first.

        Args:
            sandbox_id: Only by this sandbox.
            team: Only by this team.
            since: Only from this day on.
        """
        rows = [
            row
            for row in self._uses.values()
            if sandbox_id in (None, row.sandbox_id) and team in (None, row.team) and row.day >= since
        ]
        rows.sort(key=lambda row: (row.day, row.created_at))
        return [_told_use(row) for row in rows]

    def budget(self, name: str) -> ModelBudgetUse | None:
        """How far a budget is used now; None if there is none."""
        row = self._budgets.get(name)
        return None if row is None else _told_budget(model_budgets.current(row, self.clock()))

    @property
    def is_held(self) -> bool:
        """Whether the edge may spend anything."""
        return any(row.allotted_tokens or row.allotted_nanos for row in self._budgets.values())

    def budgets(self) -> list[ModelBudgetUse]:
        """How far all budgets are used now."""
        return [told for name in self._budgets if (told := self.budget(name)) is not None]


class _Settling:
    """Counts messages on copies of the rows, until they are on the disk."""

    def __init__(
        self,
        now_s: float,
        budgets: Mapping[str, BudgetRow],
        uses: Mapping[str, ModelUseRow],
        edge: EdgeRow | None,
        team_of: Callable[[str], str | None],
    ) -> None:
        self._now_s = now_s
        self._known, self._known_uses, self._known_edge = budgets, uses, edge
        self._team_of = team_of
        self.budgets: dict[str, BudgetRow] = {}
        self.uses: dict[str, ModelUseRow] = {}
        self.edge = edge
        self.outcome = Outcome()

    def changed(self) -> list[_LedgerRow]:
        """The rows to write."""
        rows: list[_LedgerRow] = [row for row in self.budgets.values() if row != self._known[row.budget]]
        rows += self.uses.values()
        if self.edge is not None and self.edge != self._known_edge:
            rows.append(self.edge)
        return rows

    def take(self, message: ModelMessage) -> None:
        """Count a message."""
        if isinstance(message, Began):
            self._begin(message)
        elif isinstance(message, Need):
            self._allot(message)
        elif isinstance(message, Billed):
            self._bill(message)
        else:
            self._return(message)

    def _row(self, budget: str) -> BudgetRow | None:
        row = self.budgets.get(budget) or self._known.get(budget)
        return None if row is None else model_budgets.current(row, self._now_s)

    def _begin(self, message: Began) -> None:
        is_known = self.edge is not None and self.edge.edge == message.edge
        if not is_known:
            self.edge = EdgeRow(created_at=self._now_s, edge=message.edge, last_bill=0)
        for budget in self._known:
            if (row := self._row(budget)) is None:
                continue
            amount = Amount(row.allotted_tokens, row.allotted_nanos)
            if not is_known and amount != Amount():
                before, row = row, model_budgets.lost(row)
                self.outcome.losses.append(Loss(budget, amount))
                self._mark(before, row, None)
            holding = message.budgets.get(budget)
            holds = Amount() if holding is None else Amount(holding.tokens, holding.nanos)
            self.budgets[budget] = model_budgets.held(row, holds)

    def _allot(self, message: Need) -> None:
        row, given = self._row(message.budget), model_budgets.NOTHING
        if row is not None:
            needed = Amount(message.tokens, message.nanos)
            self.budgets[message.budget], given = model_budgets.allot(row, needed)
        self.outcome.allotted[message.id] = (message.budget, given)

    def _bill(self, message: Billed) -> None:
        again = self.edge is not None and message.id <= self.edge.last_bill
        cost = Amount(message.usage.tokens, message.nanos)
        bill = partial(model_budgets.bill, cost=cost, at=message.at, again=again)
        self._each(message.budgets, bill, message.sandbox)
        self.outcome.settled.append(message.id)
        if again:
            return
        if self.edge is not None:
            self.edge = self.edge.but(last_bill=message.id)
        self.outcome.bills.append(message)
        self._use(message)

    def _return(self, message: Returned) -> None:
        unused = Amount(message.tokens, message.nanos)
        self._each([message.budget], partial(model_budgets.give_back, unused=unused))
        self.outcome.settled.append(message.id)

    def _each(
        self, budgets: Iterable[str], change: Callable[[BudgetRow], BudgetRow], sandbox_id: str | None = None
    ) -> None:
        for budget in budgets:
            if (row := self._row(budget)) is not None:
                self.budgets[budget] = changed = change(row)
                self._mark(row, changed, sandbox_id)

    def _mark(self, before: BudgetRow, after: BudgetRow, sandbox_id: str | None) -> None:
        was, now = model_budgets.percent(before), model_budgets.percent(after)
        if marks := [mark for mark in MARKS if was < mark <= now]:
            self.outcome.reached.append(Reached(after.budget, max(marks), sandbox_id))

    def _use(self, bill: Billed) -> None:
        day = datetime.datetime.fromtimestamp(bill.at, datetime.UTC).date().isoformat()
        key = "/".join((day, bill.sandbox, bill.provider, bill.model))
        row = self.uses.get(key) or self._known_uses.get(key)
        if row is None:
            row = ModelUseRow(
                use_key=key,
                created_at=bill.at,
                day=day,
                sandbox_id=bill.sandbox,
                team=self._team_of(bill.sandbox),
                provider=bill.provider,
                model=bill.model,
            )
        self.uses[key] = row.but(
            requests=row.requests + 1,
            input=row.input + bill.usage.input,
            cache_read=row.cache_read + bill.usage.cache_read,
            cache_write=row.cache_write + bill.usage.cache_write,
            output=row.output + bill.usage.output,
            estimated=row.estimated + bill.estimated,
            nanos=row.nanos + bill.nanos,
        )


def _told_use(row: ModelUseRow) -> ModelUse:
    values: dict[str, Any] = {
        name: getattr(row, name) for name in ModelUse.__struct_fields__ if name != "usd"
    }
    return ModelUse(**values, usd=usd_of(row.nanos))


def _told_budget(row: BudgetRow) -> ModelBudgetUse:
    return ModelBudgetUse(
        budget=row.budget,
        per="day" if row.until else "total",
        usd=None if row.limit_nanos is None else usd_of(row.limit_nanos),
        tokens=row.limit_tokens,
        spent_usd=usd_of(row.spent_nanos),
        spent_tokens=row.spent_tokens,
        held_usd=usd_of(row.allotted_nanos),
        held_tokens=row.allotted_tokens,
    )
