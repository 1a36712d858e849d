"""Budgets for models: whatever dies, and in whatever order, nobody spends more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.network import Began, Billed, Holding, ModelMessage, ModelUsage, Need, Returned
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import KEYS, BudgetRow, EdgeRow, ModelUseRow, key_of
from atoll.supervisor.tenants.model_budgets import NOTHING, day_end
from atoll.supervisor.tenants.model_ledger import ModelLedger, Outcome
from atoll.types import ModelBudget

DAY_S = 86_400
NOON = 20_000 * DAY_S + DAY_S // 2
BOTH = ["sandbox:s1", "home"]
LIMITS = {
    "sandbox:s1": ModelBudget(tokens=1_000, usd=3e-6),
    "home": ModelBudget(tokens=1_500, per="total"),
}
Story = Callable[[], Coroutine[Any, Any, None]]


class DiedError(Exception):
    """The supervisor dies here."""


class MemoryStore:
    """A disk. It can be told to die before or after the next write."""

    def __init__(self) -> None:
        self.rows: dict[tuple[type, str], Any] = {}
        self.dies = ""

    async def all(self, kind: type[Any]) -> list[Any]:
        return [row for (its, _), row in self.rows.items() if its is kind]

    async def put(self, *rows: Any, durable: bool) -> None:
        assert durable
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise DiedError
        self.rows |= {(type(row), key_of(row)): row for row in rows}
        if dies == "after":
            raise DiedError

    async def delete(self, *rows: Any, durable: bool) -> None:
        for row in rows:
            del self.rows[type(row), key_of(row)]


class World:
    """A supervisor with its disk, and an edge that keeps to its word."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.now_s = float(NOON)
        self.edges = 0
        self.spent: dict[str, int] = dict.fromkeys(BOTH, 0)  # tokens that have really gone, of this period
        self.new_edge()

    def new_edge(self) -> None:
        self.edges += 1
        self.last_id = 0
        self.has = {budget: [0, 0] for budget in BOTH}
        self.unsettled: list[Billed | Returned] = []
        self.outbox: list[ModelMessage] = []

    async def new_supervisor(self) -> None:
        self.ledger = ModelLedger(self.store, lambda: self.now_s)
        await self.ledger.load()
        await self.ledger.declare(LIMITS)
        told = {
            budget: Holding(
                tokens=has[0] + sum(tokens_of(one, budget) for one in self.unsettled),
                nanos=has[1] + sum(nanos_of(one, budget) for one in self.unsettled),
            )
            for budget, has in self.has.items()
        }
        self.outbox = [Began(edge=f"edge-{self.edges}", budgets=told), *self.unsettled]

    async def exchange(self) -> None:
        """The supervisor takes all that was sent, and answers; or it dies, and another one comes."""
        sent, self.outbox = self.outbox, []
        try:
            outcome = await self.ledger.settle(sent)
        except DiedError:
            await self.new_supervisor()
            return
        for budget, part in outcome.allotted.values():
            self.has[budget][0] += part.tokens
            self.has[budget][1] += max(part.nanos, 0)  # what has no limit is not counted
        self.unsettled = [one for one in self.unsettled if one.id not in outcome.settled]

    def next_id(self) -> int:
        self.last_id += 1
        return self.last_id

    def need(self, budget: str, tokens: int) -> None:
        self.outbox.append(Need(id=self.next_id(), budget=budget, tokens=tokens, nanos=tokens * 2))

    def use(self, tokens: int) -> None:
        """A request of so many tokens, if it was allotted in every budget."""
        costs = {budget: tokens * 2 if limit.nanos else 0 for budget, limit in LIMITS.items()}
        if any(has[0] < tokens or has[1] < costs[budget] for budget, has in self.has.items()):
            return
        for budget, has in self.has.items():
            has[0], has[1] = has[0] - tokens, has[1] - costs[budget]
            self.spent[budget] += tokens
        self.say(billed(self.next_id(), tokens, at=self.now_s))

    def give_back(self, budget: str) -> None:
        tokens, nanos = self.has[budget]
        self.has[budget] = [0, 0]
        self.say(Returned(id=self.next_id(), budget=budget, tokens=tokens, nanos=nanos))

    def say(self, message: Billed | Returned) -> None:
        self.unsettled.append(message)
        self.outbox.append(message)

    def midnight(self) -> None:
        self.now_s = float(day_end(self.now_s))
        self.has["sandbox:s1"] = [0, 0]  # its `until` has passed
        self.spent["sandbox:s1"] = 0

    def check(self) -> None:
        for row in self.store.rows.values():
            if isinstance(row, BudgetRow):
                assert row.spent_tokens + row.allotted_tokens <= (row.limit_tokens or 0)
                assert row.spent_nanos + row.allotted_nanos <= (row.limit_nanos or 1 << 62)
        for budget, limit in LIMITS.items():
            held = self.has[budget][0]
            assert self.spent[budget] + held <= (limit.tokens or 0)


def billed(number: int, tokens: int, at: float = NOON, budgets: list[str] = BOTH) -> Billed:
    return Billed(
        id=number,
        at=at,
        sandbox="s1",
        asked="cheap",
        provider="openai",
        model="gpt-5-mini",
        usage=ModelUsage(input=tokens - tokens // 2, output=tokens // 2),
        nanos=tokens * 2,
        status=200,
        ending="whole",
        estimated=False,
        budgets=budgets,
    )


def tokens_of(message: Billed | Returned, budget: str) -> int:
    if isinstance(message, Returned):
        return message.tokens if message.budget == budget else 0
    return message.usage.tokens


def nanos_of(message: Billed | Returned, budget: str) -> int:
    if isinstance(message, Returned):
        return message.nanos if message.budget == budget else 0
    return message.nanos


STEPS = st.one_of(
    st.tuples(st.just("need"), st.sampled_from(BOTH), st.integers(1, 400)),
    st.tuples(st.just("use"), st.integers(1, 200)),
    st.tuples(st.just("give_back"), st.sampled_from(BOTH)),
    st.tuples(st.just("exchange")),
    st.tuples(st.just("supervisor_dies"), st.sampled_from(["before", "after", "now"])),
    st.tuples(st.just("edge_dies")),
    st.tuples(st.just("midnight")),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_whoever_dies_and_whenever_nobody_spends_more_and_nothing_stays_reserved(steps: list[Any]) -> None:
    async def story() -> None:
        world = World()
        await world.new_supervisor()
        await world.exchange()
        for name, *given_ in steps:
            if name == "supervisor_dies":
                world.store.dies = given_[0] if given_[0] != "now" else ""
                if given_[0] == "now":
                    await world.new_supervisor()
            elif name == "edge_dies":
                world.new_edge()
                await world.new_supervisor()
            elif name == "exchange":
                await world.exchange()
            elif name == "midnight":
                await world.exchange()  # what is on its way over midnight belongs to neither day
                world.midnight()
            else:
                getattr(world, name)(*given_)
            world.check()
        world.store.dies = ""
        while world.outbox:
            await world.exchange()
        for budget in BOTH:
            world.give_back(budget)
        while world.outbox:
            await world.exchange()
        world.check()
        assert not world.unsettled
        for budget in BOTH:
            told = world.ledger.budget(budget)
            assert told is not None
            assert (told.held_tokens, told.held_usd) == (0, 0.0)
            if "edge_dies" not in [step[0] for step in steps]:
                assert told.spent_tokens == world.spent[budget]

    asyncio.run(story())


def run(test: Callable[[ModelLedger, MemoryStore], Coroutine[Any, Any, None]]) -> Story:
    async def story() -> None:
        store = MemoryStore()
        ledger = ModelLedger(store, lambda: float(NOON), {"s1": "reef"}.get)
        await ledger.declare(LIMITS)
        await ledger.settle([Began(edge="e", budgets={})])
        await test(ledger, store)

    return story


def told(test: Callable[[ModelLedger, MemoryStore], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def sync() -> None:
        asyncio.run(run(test)())

    sync.__name__ = test.__name__
    return sync


def allotted(outcome: Outcome, number: int) -> tuple[int, bool, int]:
    given_ = outcome.allotted[number][1]
    return given_.tokens, given_.over, given_.left_tokens


@told
async def test_the_edge_gets_what_it_needs_or_all_that_is_left(ledger: ModelLedger, _: MemoryStore) -> None:
    needs = [Need(id=each, budget="sandbox:s1", tokens=600, nanos=10) for each in (1, 2)]
    outcome = await ledger.settle([*needs, Need(id=3, budget="sandbox:gone", tokens=1, nanos=1)])
    assert allotted(outcome, 1) == (600, False, 400)
    assert allotted(outcome, 2) == (400, True, 0)
    assert outcome.allotted[1][1].until == day_end(NOON)
    assert outcome.allotted[1][1].limits == ("usd", "tokens")
    assert outcome.allotted[3] == ("sandbox:gone", NOTHING)


@told
async def test_what_has_no_limit_is_not_counted_and_a_limit_that_comes_is_told(
    ledger: ModelLedger, store: MemoryStore
) -> None:
    outcome = await ledger.settle([Need(id=1, budget="home", tokens=10, nanos=50)])
    given_ = outcome.allotted[1][1]
    assert (given_.tokens, given_.nanos, given_.left_nanos, given_.over) == (30, -1, -1, False)
    assert (given_.limits, given_.until) == (("tokens",), 0)
    assert store.rows[BudgetRow, "home"].allotted_nanos == 0
    await ledger.declare({"home": ModelBudget(tokens=50, usd=1e-6, per="total")})
    limits = ledger.limits_of("home")
    assert limits is not None
    assert (limits.tokens, limits.left_tokens, limits.left_nanos, limits.over) == (0, 20, 1000, False)
    assert ledger.limits_of("gone") is None


@told
async def test_a_bill_is_counted_once_and_its_use_told(ledger: ModelLedger, store: MemoryStore) -> None:
    await ledger.settle([Need(id=1, budget=budget, tokens=100, nanos=200) for budget in BOTH])
    bill = billed(2, 60)
    assert (await ledger.settle([bill])).bills == [bill]
    again = await ledger.settle([bill])
    assert (again.bills, again.settled) == ([], [2])
    (use,) = ledger.uses(team="reef")
    assert (use.sandbox_id, use.model, use.requests, use.tokens, use.usd) == (
        "s1",
        "gpt-5-mini",
        1,
        60,
        1.2e-7,
    )
    assert ledger.uses(sandbox_id="s2") == ledger.uses(since="2999-01-01") == []
    assert store.rows[EdgeRow, "edge"].last_bill == 2


@told
async def test_what_an_edge_held_at_its_death_counts_as_spent_and_is_told(
    ledger: ModelLedger, _: MemoryStore
) -> None:
    await ledger.settle([Need(id=1, budget="home", tokens=100, nanos=0)])
    outcome = await ledger.settle([Began(edge="another", budgets={})])
    assert [(loss.budget, loss.amount.tokens) for loss in outcome.losses] == [("home", 100)]
    home = ledger.budget("home")
    assert home is not None
    assert (home.spent_tokens, home.held_tokens) == (100, 0)


@told
async def test_a_lower_limit_keeps_what_is_spent(ledger: ModelLedger, _: MemoryStore) -> None:
    await ledger.settle([billed(1, 500)])
    await ledger.declare({"home": ModelBudget(tokens=400, per="total")})
    outcome = await ledger.settle([Need(id=2, budget="home", tokens=1, nanos=0)])
    assert allotted(outcome, 2) == (0, True, 0)


@told
async def test_budgets_of_sandboxes_that_are_gone_are_forgotten(
    ledger: ModelLedger, store: MemoryStore
) -> None:
    await ledger.settle([billed(1, 5, at=NOON - 100 * DAY_S), billed(2, 5)])
    again = ModelLedger(store, lambda: float(NOON))
    await again.load({"sandbox:s2"})
    assert [each.budget for each in again.budgets()] == ["home"]
    assert len(again.uses()) == 1
    assert {key[0] for key in store.rows} == {BudgetRow, ModelUseRow, EdgeRow} & KEYS.keys()


def test_the_database_of_a_home_keeps_it_all(tmp_path: Path) -> None:
    async def story() -> None:
        database = Database(tmp_path / "database")
        await database.open()
        ledger = ModelLedger(database, lambda: float(NOON))
        await ledger.declare(LIMITS)
        await ledger.settle([Began(edge="e", budgets={}), billed(1, 10)])
        again = ModelLedger(database, lambda: float(NOON))
        await again.load()
        assert (again.budgets(), again.uses()) == (ledger.budgets(), ledger.uses())
        assert not (await again.settle([billed(1, 10)])).bills
        await again.load(set())
        assert [each.budget for each in again.budgets()] == ["home"]
        await database.aclose()

    asyncio.run(story())


def test_nothing_that_a_disk_did_not_take_was_counted() -> None:
    async def story() -> None:
        store = MemoryStore()
        ledger = ModelLedger(store, lambda: float(NOON))
        await ledger.declare(LIMITS)
        store.dies = "before"
        with pytest.raises(DiedError):
            await ledger.settle([Need(id=1, budget="home", tokens=9, nanos=0)])
        home = ledger.budget("home")
        assert home is not None
        assert home.held_tokens == 0

    asyncio.run(story())
