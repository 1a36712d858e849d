"""Who would hear of an ask now. Without anybody, an ask is refused at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

# Between two requests of the same listener. Also the time in which one that was cut off comes back.
_GAP_S = 5.0
_Scope = tuple[str | None, str | None]


@dataclass(eq=False, repr=False)
class AskListeners:
    """Clients that wait for asks.

    Args:
        boot_s: A clock that never jumps.
    """

    boot_s: Callable[[], float]
    _open: Counter[_Scope] = field(default_factory=Counter, init=False)
    _left: dict[_Scope, float] = field(default_factory=dict, init=False)

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
            self._left[scope] = now + _GAP_S

    def is_heard(self, team: str | None, sandbox_id: str) -> bool:
        """Whether somebody hears of an ask of this sandbox."""
        now = self.boot_s()
        there = [scope for scope, count in self._open.items() if count > 0]
        there += [scope for scope, until in self._left.items() if until > now]
        return any(of in (None, team) and one in (None, sandbox_id) for of, one in there)
