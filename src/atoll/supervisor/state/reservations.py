"""Reserves names for things in the making."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from atoll.errors import NameTakenError

if TYPE_CHECKING:
    from atoll.supervisor.state.rows import SnapshotRow
    from atoll.supervisor.state.sandbox import Sandbox


class Reservations(ABC):
    """The part of the inventory that reserves names for things without a row yet."""

    def __init__(self) -> None:
        self._reserved: set[tuple[str, str]] = set()

    @abstractmethod
    def all(self) -> Sequence[Sandbox]:
        """All sandboxes."""

    @abstractmethod
    def snapshots(self) -> Sequence[SnapshotRow]:
        """All snapshots."""

    @contextlib.contextmanager
    def reserve_sandbox_name(self, name: str | None) -> Iterator[None]:
        """Reserve a name for a sandbox that is being made.

        Raises:
            NameTakenError: Another sandbox has the name, or is getting it.
        """
        taken = any(sandbox.row.name == name for sandbox in self.all())
        with self._reserve("sandbox", name, taken):
            yield

    @contextlib.contextmanager
    def reserve_snapshot_name(self, name: str | None) -> Iterator[None]:
        """Reserve a name for a snapshot that is being made.

        Raises:
            NameTakenError: Another snapshot has the name, or is getting it.
        """
        with self._reserve("snapshot", name, any(row.name == name for row in self.snapshots())):
            yield

    @contextlib.contextmanager
    def _reserve(self, kind: str, name: str | None, taken: bool) -> Iterator[None]:
        if name is None:
            yield
            return
        if taken or (kind, name) in self._reserved:
            raise NameTakenError(
                f"another {kind} has the name {name!r}", hint=f"choose another name, or delete that {kind}"
            )
        self._reserved.add((kind, name))
        try:
            yield
        finally:
            self._reserved.discard((kind, name))
