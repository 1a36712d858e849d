"""Who would hear of an ask now. Without anybody, an ask is refused at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# A listener whose connection was lost, as by a restart of the supervisor, is back within this time.
GAP_S = 2.0
_Scope = tuple[str | None, str | None]


@dataclass(eq=False, repr=False)
class AskListeners:
    """Clients that wait for asks.

    Args:
        boot_s: A clock that never jumps.
        elsewhere: Whether a channel to the outside tells somebody of every ask.
    """

    boot_s: Callable[[], float]
    elsewhere: Callable[[], bool] = lambda: False
    _open: Counter[_Scope] = field(default_factory=Counter, init=False)
    _left: dict[_Scope, float] = field(default_factory=dict, init=False)

    _begun: float = field(init=False)

    def __post_init__(self) -> None:
        self._begun = self.boot_s()

    @contextmanager
    def listening(self, team: str | None, sandbox_id: str | None) -> Iterator[None]:
        """Count a client that hears of the asks of a team's sandboxes, or of one; None is all."""
        scope = (team, sandbox_id)
        self._open[scope] += 1
        try:
            yield
        finally:
            self._open[scope] -= 1
            now = self.boot_s()
            self._left = {one: until for one, until in self._left.items() if until > now}
            self._left[scope] = now + GAP_S

    def is_heard(self, team: str | None, sandbox_id: str) -> bool:
        """Whether somebody hears of an ask of this sandbox now."""
        if self.elsewhere():
            return True
        return _among([scope for scope, count in self._open.items() if count > 0], team, sandbox_id)

    def may_be_heard(self, team: str | None, sandbox_id: str) -> bool:
        """Whether somebody heard just before, and may be back soon."""
        now = self.boot_s()
        left = [scope for scope, until in self._left.items() if until > now]
        return now < self._begun + GAP_S or _among(left, team, sandbox_id)


def _among(scopes: list[_Scope], team: str | None, sandbox_id: str) -> bool:
    return any(of in (None, team) and one in (None, sandbox_id) for of, one in scopes)
