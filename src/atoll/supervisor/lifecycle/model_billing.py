"""Answers the edge what it may spend on models, and notes what requests cost."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.network import Began
from atoll.supervisor.state.counters import OTHER
from atoll.supervisor.state.inventory import row_of
from atoll.types.internal import usd_of

if TYPE_CHECKING:
    from atoll.network import Billed, ModelMessage, ModelTalk
    from atoll.supervisor.state.acts import Acts
    from atoll.supervisor.state.counters import Counters
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.tenants.model_ledger import ModelLedger, Outcome, Reached

_MANY = 1000
_AGAIN_S = 1.0
_LAST_S = 1.0
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class ModelBilling:
    """Takes what the edge says of models in its order, and answers when it is on the disk.

    Attributes:
        reached: Called with each mark that a budget has reached, and the sandbox, if it is still there.
    """

    ledger: ModelLedger
    talk: ModelTalk
    inventory: Inventory
    acts: Acts
    counters: Counters
    reached: Callable[[Reached, SandboxRow | None], None] | None = None
    _waiting: deque[tuple[int, ModelMessage]] = field(default_factory=deque, init=False)
    _came: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    # Counts the edges, and the times that one was found again. An answer is for the one that has asked: the next one
    # has said itself what it holds.
    _edge: int = field(default=0, init=False)

    def heard(self, message: ModelMessage) -> None:
        """See ``ModelListener``."""
        if isinstance(message, Began):
            self._edge += 1
        self._waiting.append((self._edge, message))
        self._came.set()

    def tell_limits(self, budgets: Iterable[str]) -> None:
        """Have the edge know the limits of budgets that may have changed. It gets nothing to spend by this."""
        for budget in budgets:
            if (limits := self.ledger.limits_of(budget)) is not None:
                self.talk.allot(0, budget, limits)

    async def run(self) -> None:
        """Work for ever."""
        while True:
            await self._came.wait()
            self._came.clear()
            while self._waiting:
                await self._settle_some()

    async def finish(self) -> None:
        """Have the edge give back what it does not use, since it ends. Call this once ``run`` has ended."""
        if not self.talk.give_back():
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_S):
                while self.ledger.is_held or self._waiting:
                    if not self._waiting:
                        await self._came.wait()
                    self._came.clear()
                    while self._waiting:
                        await self._settle_some()

    async def _settle_some(self) -> None:
        edge = self._waiting[0][0]
        some = [message for number, message in list(self._waiting)[:_MANY] if number == edge]
        try:
            outcome = await self.ledger.settle(some)
        except AtollError as error:
            _log.error("what models cost cannot be written, and their requests wait: %s", error)
            await asyncio.sleep(_AGAIN_S)
            return
        for _ in some:
            self._waiting.popleft()
        if edge == self._edge:
            self._answer(outcome)
        self._note(outcome)

    def _answer(self, outcome: Outcome) -> None:
        for number, (budget, given) in outcome.allotted.items():
            self.talk.allot(number, budget, given)
        for number in outcome.settled:
            self.talk.settled(number)

    def _note(self, outcome: Outcome) -> None:
        for bill in outcome.bills:
            self._count(bill)
            self.acts.model_called(bill, row_of(self.inventory, bill.sandbox))
        if self.reached is not None:
            for one in outcome.reached:
                self.reached(one, row_of(self.inventory, one.sandbox_id or ""))
        for loss in outcome.losses:
            amount = loss.amount
            _log.warning("the edge ended with %d tokens of the budget %s", amount.tokens, loss.budget)
            self.acts.model_budget_lost(loss.budget, tokens=amount.tokens, nanos=amount.nanos)

    def _count(self, bill: Billed) -> None:
        usage = bill.usage
        # A name that a provider refuses is nobody's but the guest's, which can make up many.
        model = OTHER if bill.status >= 400 and not usage.tokens else bill.model
        for name, amount in (
            ("requests", 1.0),
            ("input", usage.input + usage.cache_read + usage.cache_write),
            ("output", usage.output),
            ("usd", usd_of(bill.nanos)),
        ):
            self.counters.add(f"model_{name}", bill.provider, model, amount=amount)
