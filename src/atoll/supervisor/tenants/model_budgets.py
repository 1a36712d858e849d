"""The arithmetic of budgets for models: what may still be spent, and what counts as spent. Pure."""

from __future__ import annotations

import msgspec

from atoll.supervisor.state.rows import BudgetRow
from atoll.types import ModelBudget

ENDLESS = -1
"""Said of a kind of which a budget has no limit."""

_DAY_S = 86_400
# Of what is left, the edge gets this much at once, so that it need not ask for each request.
_CHUNK = 50


class Amount(msgspec.Struct, frozen=True):
    """Tokens, and money in nanos of a dollar."""

    tokens: int = 0
    nanos: int = 0

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.tokens + other.tokens, self.nanos + other.nanos)


class Allotment(msgspec.Struct, frozen=True, kw_only=True):
    """What the edge may spend more of a budget, and what is left of it then. ``ENDLESS`` is without a limit.

    Args:
        until: When it ends, in Unix seconds; 0 is never.
        over: Whether it is less than was needed.
        limits: The kinds of limits that the budget has.
    """

    tokens: int
    nanos: int
    until: int
    over: bool
    left_tokens: int
    left_nanos: int
    limits: tuple[str, ...]


NOTHING = Allotment(
    tokens=0, nanos=0, until=0, over=True, left_tokens=0, left_nanos=0, limits=("usd", "tokens")
)
"""What the edge gets of a budget that nobody knows."""


def day_end(now_s: float) -> int:
    """The end of a moment's day in UTC, in Unix seconds."""
    return (int(now_s) // _DAY_S + 1) * _DAY_S


def new_budget(budget: str, limit: ModelBudget, now_s: float) -> BudgetRow:
    """A budget of which nothing is spent."""
    row = BudgetRow(budget=budget, created_at=now_s, until=0)
    return with_limit(row, limit, now_s)


def with_limit(row: BudgetRow, limit: ModelBudget, now_s: float) -> BudgetRow:
    """A budget with another limit. What is spent stays, also if it is more than the limit now."""
    row = row.but(limit_tokens=limit.tokens, limit_nanos=limit.nanos)
    if (limit.per == "day") == (row.until != 0):
        return row
    return row.but(until=day_end(now_s) if limit.per == "day" else 0)


def current(row: BudgetRow, now_s: float) -> BudgetRow:
    """A budget of a day, as it is on the day of now: the edge has dropped what it got on an earlier day."""
    if row.until == 0 or now_s < row.until:
        return row
    return row.but(until=day_end(now_s), spent_tokens=0, spent_nanos=0, allotted_tokens=0, allotted_nanos=0)


def allot(row: BudgetRow, needed: Amount) -> tuple[BudgetRow, Allotment]:
    """Give the edge what it needs of a budget, or all that is left. What it gets counts at once.

    A kind without a limit is not counted, here and at the edge.
    """
    left = limits_of(row)
    tokens, nanos = _given(left.left_tokens, needed.tokens), _given(left.left_nanos, needed.nanos)
    given = msgspec.structs.replace(
        left,
        tokens=tokens,
        nanos=nanos,
        over=0 <= tokens < needed.tokens or 0 <= nanos < needed.nanos,
        left_tokens=ENDLESS if tokens == ENDLESS else left.left_tokens - tokens,
        left_nanos=ENDLESS if nanos == ENDLESS else left.left_nanos - nanos,
    )
    row = row.but(
        allotted_tokens=row.allotted_tokens + max(tokens, 0),
        allotted_nanos=row.allotted_nanos + max(nanos, 0),
    )
    return row, given


def limits_of(row: BudgetRow) -> Allotment:
    """What is left of a budget, and its limits, without giving the edge anything."""
    limits = {"usd": row.limit_nanos, "tokens": row.limit_tokens}
    return Allotment(
        tokens=0,
        nanos=0,
        until=row.until,
        over=False,
        left_tokens=_left(row.limit_tokens, row.spent_tokens + row.allotted_tokens),
        left_nanos=_left(row.limit_nanos, row.spent_nanos + row.allotted_nanos),
        limits=tuple(kind for kind, limit in limits.items() if limit is not None),
    )


def bill(row: BudgetRow, cost: Amount, at: float, *, again: bool) -> BudgetRow:
    """Count a request that the edge has sent.

    Args:
        at: When its reservation was made, which says to which day it belongs.
        again: Whether it was counted before. It only leaves what the edge holds then.
    """
    if row.until and at < row.until - _DAY_S:
        return row
    row = give_back(row, cost)
    if again:
        return row
    return row.but(spent_tokens=row.spent_tokens + cost.tokens, spent_nanos=row.spent_nanos + cost.nanos)


def give_back(row: BudgetRow, unused: Amount) -> BudgetRow:
    """Take back what the edge has not used. It never has less than nothing."""
    return row.but(
        allotted_tokens=max(row.allotted_tokens - unused.tokens, 0),
        allotted_nanos=max(row.allotted_nanos - unused.nanos, 0),
    )


def percent(row: BudgetRow) -> int:
    """How much of a budget is spent, in percent of the limit that it is nearest to."""
    kinds = ((row.spent_tokens, row.limit_tokens), (row.spent_nanos, row.limit_nanos))
    return max((100 * spent // limit for spent, limit in kinds if limit), default=0)


def held(row: BudgetRow, holds: Amount) -> BudgetRow:
    """Believe the edge what it holds of a budget: an answer to an earlier supervisor may not have reached it."""
    return row.but(allotted_tokens=max(holds.tokens, 0), allotted_nanos=max(holds.nanos, 0))


def lost(row: BudgetRow) -> BudgetRow:
    """Count as spent what an edge held that is gone: nobody knows how much of it was used."""
    return row.but(
        spent_tokens=row.spent_tokens + row.allotted_tokens,
        spent_nanos=row.spent_nanos + row.allotted_nanos,
        allotted_tokens=0,
        allotted_nanos=0,
    )


def _left(limit: int | None, used: int) -> int:
    return ENDLESS if limit is None else max(limit - used, 0)


def _given(left: int, needed: int) -> int:
    return ENDLESS if left == ENDLESS else min(left, max(needed, left // _CHUNK, 0))
