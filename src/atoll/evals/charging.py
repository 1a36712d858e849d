"""Charges the cost of runs to a budget."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from contextvars import ContextVar

from atoll.errors import InvalidSpecError, StateError
from atoll.types.internal import check_number


class Budget:
    """Adds up the costs of runs. Any thread may charge.

    Args:
        most: The most to spend; None means any amount.
        spent: The costs so far.
        on_spent: Called after each charge that leaves nothing, with its account and whether anything was left
            before it.
    """

    def __init__(self, most: float | None, spent: float, on_spent: Callable[[Account, bool], object]) -> None:
        self._most = most
        self._spent = spent
        self._on_spent = on_spent
        self._lock = threading.Lock()

    @property
    def left(self) -> bool:
        """Whether anything is left to spend."""
        return self._most is None or self._spent < self._most

    def charge(self, cost: float, account: Account) -> None:
        """Spend ``cost``."""
        with self._lock:
            before = self.left
            self._spent += cost
            after = self.left
        if not after:
            self._on_spent(account, before)


class Account:
    """The cost of one run so far. Charges nothing once it is closed."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._costs: list[float] = []
        self._closed = False

    @property
    def cost(self) -> float:
        """The sum of all charges."""
        return math.fsum(self._costs)

    def charge(self, cost: float) -> None:
        """Add ``cost``.

        Raises:
            StateError: The run is over.
        """
        if self._closed:
            raise StateError("the run is over", hint="charge within the task")
        self._costs.append(cost)
        self._budget.charge(cost, self)

    def close(self) -> None:
        """Refuse further charges."""
        self._closed = True


account: ContextVar[Account] = ContextVar("atoll.evals.account")


def charge(cost: float) -> None:
    """Charge something to the run that calls this, and to the budget of its evaluation.

    The unit is yours: dollars, tokens, calls. Once the budget is spent, no further run starts, and the
    current runs are stopped. The run that has spent the last of it may end by itself; its next charge stops
    it. Call this anywhere below a task, in the task's own thread.

    Raises:
        InvalidSpecError: ``cost`` is negative or no number, or no task of an evaluation calls this.
        StateError: The run is over.
    """
    check_number("cost", cost, least=0, hint="give what it cost, 0 or more")
    current = account.get(None)
    if current is None:
        raise InvalidSpecError(
            "no run of an evaluation is charged", hint="call charge from a task, in its own thread"
        )
    current.charge(cost)
