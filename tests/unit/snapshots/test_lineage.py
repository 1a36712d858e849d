from __future__ import annotations

import pytest

from atoll.errors import InUseError, SnapshotNotFoundError
from atoll.snapshots import SnapshotTree, line_of
from atoll.types import SnapshotInfo


def snapshot(snapshot_id: str, parent_id: str | None = None, created_at: float = 0) -> SnapshotInfo:
    return SnapshotInfo(
        snapshot_id=snapshot_id,
        name=f"name-of-{snapshot_id}",
        comment="",
        image="base",
        sandbox_id="s",
        parent_id=parent_id,
        created_at=created_at,
        memory_bytes=0,
        disk_bytes=0,
        stopped_ms=0,
    )


def ids(snapshots: list[SnapshotInfo]) -> list[str]:
    return [each.snapshot_id for each in snapshots]


@pytest.fixture
def tree() -> SnapshotTree:
    """A root with two branches, one of them longer, and an orphan."""
    return SnapshotTree(
        [
            snapshot("b", "root", 3),
            snapshot("root", None, 1),
            snapshot("a", "root", 2),
            snapshot("a1", "a", 4),
            snapshot("orphan", "deleted", 5),
        ]
    )


def test_children_are_in_the_order_of_their_making(tree: SnapshotTree) -> None:
    assert ids(tree.children("root")) == ["a", "b"]
    assert ids(tree.children("a1")) == []


def test_a_parent_is_not_removable_and_names_its_children(tree: SnapshotTree) -> None:
    with pytest.raises(InUseError, match="name-of-a, name-of-b"):
        tree.removable("root")


def test_a_leaf_is_removable(tree: SnapshotTree) -> None:
    assert tree.removable("a1").snapshot_id == "a1"


def test_an_unknown_snapshot_is_not_found(tree: SnapshotTree) -> None:
    for ask in (tree.children, tree.removable):
        with pytest.raises(SnapshotNotFoundError):
            ask("nobody")


def test_a_line_is_some_snapshots_and_all_that_they_are_based_on() -> None:
    parents = {"c": "b", "b": "a", "d": "a"}
    assert line_of(["c"], parents.get) == {"a", "b", "c"}
    assert line_of(["c", "d"], parents.get) == {"a", "b", "c", "d"}
    assert line_of([], parents.get) == set()
