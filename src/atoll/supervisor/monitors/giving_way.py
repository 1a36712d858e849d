"""Decides which sandbox gives way when the host runs short of memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Literal, NamedTuple

from atoll.types import HostMemory

# A guest grows if it has grown by this much in this time.
_GROWTH_BYTES = 16 << 20
_WINDOW_S = 5.0
_STEP_S = 0.25
# A killed program gives its memory back within about a second, on a busy host a bit later. Once less than
# half of the reserve is free, the next kill does not wait that long.
_GRACE_S, _CRITICAL_GRACE_S = 1.5, 0.25
_CRITICAL = 0.5
# A guest that still grows this soon after its biggest program was killed goes as a whole.
_TRIED_S = 10.0
# More than this is no noise: memory is coming back.
_RISE_BYTES = 4 << 20


class Victim(NamedTuple):
    """A sandbox to kill from: its biggest program, or all of it."""

    sandbox_id: str
    how: Literal["program", "guest"]


def is_critical(memory: HostMemory) -> bool:
    """Whether less than half of the reserve is free."""
    return memory.available_bytes < memory.kept_free_bytes * _CRITICAL


class GivingWay:
    """Knows how sandboxes have grown in the last seconds.

    The fastest grower's biggest program goes first, then the biggest grower as a whole. A sandbox that does
    not grow is spared, unless the free memory is critical: then the biggest goes.
    """

    def __init__(self) -> None:
        self._past: dict[str, deque[tuple[float, int]]] = {}
        self._before: dict[str, int] = {}
        self._now: dict[str, int] = {}
        self._tried_s: dict[str, float] = {}
        self._acted_s = -_GRACE_S
        self._available_bytes = 1 << 62

    def read(self, sizes: Mapping[str, int], now_s: float) -> None:
        """Note how much memory each running sandbox has now."""
        self._before, self._now = self._now, dict(sizes)
        for gone in self._past.keys() - sizes.keys():
            del self._past[gone]
            self._tried_s.pop(gone, None)
        for sandbox_id, size_bytes in sizes.items():
            past = self._past.setdefault(sandbox_id, deque())
            if not past or now_s - past[-1][0] >= _STEP_S:
                past.append((now_s, size_bytes))
            while now_s - past[0][0] > _WINDOW_S:
                past.popleft()

    def next(self, memory: HostMemory, now_s: float) -> Victim | None:
        """The next victim, if there has to be one."""
        rises = memory.available_bytes > self._available_bytes + _RISE_BYTES
        self._available_bytes = memory.available_bytes
        critical = is_critical(memory)
        grace_s = _CRITICAL_GRACE_S if critical else _GRACE_S
        if memory.spare_bytes >= 0 or rises or now_s - self._acted_s < grace_s:
            return None
        victim = self._victim(critical, now_s)
        if victim is not None:
            self._tried_s[victim.sandbox_id] = self._acted_s = now_s
        return victim

    def has_shrunk(self, sandbox_id: str, size_bytes: int) -> bool:
        """Whether a sandbox has given memory back since it was read, and so may be the wrong one."""
        return size_bytes < self._now.get(sandbox_id, 0) - _GROWTH_BYTES

    def worked(self, now_s: float) -> None:
        """Note that the last step has killed something just now."""
        self._acted_s = now_s

    def in_vain(self) -> None:
        """Note that the last step freed nothing: the next one need not wait."""
        self._acted_s = -_GRACE_S

    def _victim(self, critical: bool, now_s: float) -> Victim | None:
        grown = {each: growth for each in self._now if (growth := self._growth(each)) >= _GROWTH_BYTES}
        untried = {each: growth for each, growth in grown.items() if not self._was_tried(each, now_s)}
        if untried:
            return Victim(max(untried, key=untried.__getitem__), "program")
        if grown:
            return Victim(max(grown, key=self._now.__getitem__), "guest")
        if not critical or not self._now:
            return None
        biggest = max(self._now, key=self._now.__getitem__)
        return Victim(biggest, "guest" if self._was_tried(biggest, now_s) else "program")

    def _growth(self, sandbox_id: str) -> int:
        size_bytes = self._now[sandbox_id]
        if size_bytes < self._before.get(sandbox_id, 0):
            return 0
        past = self._past[sandbox_id]
        return size_bytes - past[0][1] if past else 0

    def _was_tried(self, sandbox_id: str, now_s: float) -> bool:
        return now_s - self._tried_s.get(sandbox_id, -_TRIED_S) < _TRIED_S
