from atoll.cli.commands.snapshot import tree_lines
from atoll.types import SnapshotInfo


def info(snapshot_id: str, parent_id: str | None, comment: str = "") -> SnapshotInfo:
    return SnapshotInfo(
        snapshot_id=snapshot_id,
        name=None,
        comment=comment,
        image="base",
        sandbox_id="s",
        parent_id=parent_id,
        created_at=0,
        memory_bytes=1024,
        disk_bytes=0,
        stopped_ms=0,
    )


def test_a_tree_shows_what_stands_on_what() -> None:
    infos = [info("a", None), info("b", "a"), info("c", "b"), info("d", "a", "late\n"), info("e", None)]
    assert tree_lines(infos) == [
        "a  1.0 KiB",
        "├─ b  1.0 KiB",
        "│  └─ c  1.0 KiB",
        "└─ d  1.0 KiB  late\\n",
        "e  1.0 KiB",
    ]


def test_a_snapshot_whose_parent_is_not_listed_is_a_root() -> None:
    assert tree_lines([info("b", "deleted"), info("c", "b")]) == ["b  1.0 KiB", "└─ c  1.0 KiB"]
