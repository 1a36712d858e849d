"""Protects things in the making: they have no row yet, but must not be removed as leftovers."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(eq=False, repr=False)
class Pins:
    """Ids of sandboxes, snapshots and layers, each pinned by any number of operations."""

    _held: dict[str, int] = field(default_factory=dict, init=False)

    @contextlib.contextmanager
    def during(self, *ids: str) -> Iterator[None]:
        """Pin ids while they, or something that needs them, are being made."""
        for one in ids:
            self._held[one] = self._held.get(one, 0) + 1
        try:
            yield
        finally:
            for one in ids:
                self._held[one] -= 1
                if not self._held[one]:
                    del self._held[one]

    def has(self, id_: str) -> bool:
        """Whether an operation pins the id."""
        return id_ in self._held

    def ids(self) -> set[str]:
        """All pinned ids."""
        return set(self._held)
