"""What is being made just now: it has no row yet, and is nobody's leftover all the same."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator


class Pins:
    """Ids of sandboxes, snapshots and layers, each held by any number of operations."""

    def __init__(self) -> None:
        self._held: dict[str, int] = {}

    @contextlib.contextmanager
    def during(self, *ids: str) -> Iterator[None]:
        """Hold ids while they, or something of them, is being made."""
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
        """Whether somebody holds it."""
        return id_ in self._held

    def ids(self) -> set[str]:
        """All that are held."""
        return set(self._held)
