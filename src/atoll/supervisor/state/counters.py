"""Counts what happens in a home, for metrics. A supervisor begins anew."""

from __future__ import annotations

from collections.abc import Sequence

# A metrics server keeps each series that it has ever seen, and the names of models are the guests' own.
_SERIES_MOST = 500
OTHER = "other"


class Counters:
    """Sums by name and labels. What comes when a name has 500 of them is counted together."""

    def __init__(self) -> None:
        self._sums: dict[str, dict[tuple[str, ...], float]] = {}

    def add(self, name: str, *labels: str, amount: float = 1) -> None:
        """Count more. ``amount`` is 0 or more, so that a sum never falls."""
        sums = self._sums.setdefault(name, {})
        if labels not in sums and len(sums) >= _SERIES_MOST:
            labels = (OTHER,) * len(labels)
        sums[labels] = sums.get(labels, 0.0) + amount

    def of(self, name: str) -> Sequence[tuple[tuple[str, ...], float]]:
        """The labels and the sum of each."""
        return list(self._sums.get(name, {}).items())
