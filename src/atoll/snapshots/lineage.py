"""The tree of snapshots with their bases. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

from atoll.errors import InUseError, SnapshotNotFoundError
from atoll.types import SnapshotInfo


def line_of(starts: Iterable[str], parent_of: Callable[[str], str | None]) -> set[str]:
    """Return these snapshots and all their ancestors."""
    line: set[str] = set()
    for start in starts:
        each: str | None = start
        while each is not None and each not in line:
            line.add(each)
            each = parent_of(each)
    return line


class SnapshotTree:
    """The snapshots of a home as a forest, siblings oldest first."""

    def __init__(self, snapshots: Sequence[SnapshotInfo]) -> None:
        self._by_id = {snapshot.snapshot_id: snapshot for snapshot in snapshots}
        self._children: dict[str | None, list[SnapshotInfo]] = defaultdict(list)
        for snapshot in sorted(snapshots, key=lambda each: (each.created_at, each.snapshot_id)):
            parent = snapshot.parent_id if snapshot.parent_id in self._by_id else None
            self._children[parent].append(snapshot)

    def children(self, snapshot_id: str) -> list[SnapshotInfo]:
        """Return the snapshots that are directly based on this one."""
        self._get(snapshot_id)
        return list(self._children.get(snapshot_id, []))

    def removable(self, snapshot_id: str) -> SnapshotInfo:
        """Return the snapshot if no other is based on it.

        Raises:
            SnapshotNotFoundError: There is no snapshot with that id.
            InUseError: Other snapshots are based on it; the message names them.
        """
        snapshot = self._get(snapshot_id)
        children = self.children(snapshot_id)
        if children:
            names = ", ".join(child.name or child.snapshot_id for child in children)
            raise InUseError(
                f"the snapshot {snapshot.name or snapshot_id} is the parent of {names}",
                hint="delete those first",
            )
        return snapshot

    def _get(self, snapshot_id: str) -> SnapshotInfo:
        try:
            return self._by_id[snapshot_id]
        except KeyError:
            raise SnapshotNotFoundError(
                f"no snapshot is called {snapshot_id!r}", hint="`atoll snapshot ls` lists them"
            ) from None
