from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from atoll.host import TreeCopy, copy_tree, remove_tree, tree_bytes

MIB = 1 << 20


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "source").mkdir()
    return tmp_path / "source"


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "target"


def listing(top: Path) -> dict[bytes, tuple[object, ...]]:
    """All that a tree holds, to compare two."""
    found: dict[bytes, tuple[object, ...]] = {}
    for directory, _, _ in os.walk(os.fsencode(top)):
        for name in [b"", *os.listdir(directory)]:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            content: object = None
            if stat.S_ISREG(status.st_mode):
                content = Path(os.fsdecode(path)).read_bytes()
            elif stat.S_ISLNK(status.st_mode):
                content = os.readlink(path)
            attributes = {
                key: os.getxattr(path, key, follow_symlinks=False)
                for key in os.listxattr(path, follow_symlinks=False)
            }
            found[os.path.relpath(path, os.fsencode(top))] = (
                (status.st_mode, status.st_uid, status.st_gid, status.st_rdev, status.st_mtime_ns),
                content,
                attributes,
            )
    return found


def test_a_copy_has_the_same_contents_modes_times_and_attributes(source: Path, target: Path) -> None:
    (source / "directory").mkdir(mode=0o751)
    (source / "directory" / "file").write_bytes(b"content")
    (source / "empty").touch(mode=0o640)
    (source / "program").write_bytes(b"#!/bin/sh\n")
    (source / "program").chmod(0o6755)
    (source / "link").symlink_to("../nowhere\nat all")
    os.mkfifo(source / "fifo", 0o620)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(source / "socket"))
    os.setxattr(source / "program", "user.note", b"\0\xff")
    os.setxattr(source / "directory", "user.note", b"directory")
    os.utime(source / "link", ns=(1, 2), follow_symlinks=False)
    os.utime(source / "directory" / "file", ns=(10**18 + 1, 10**18 + 2))
    os.utime(source / "directory", ns=(3, 4))
    os.utime(source, ns=(5, 6))
    copy_tree(source, target)
    assert listing(target) == listing(source)


def test_a_copy_keeps_names_that_are_no_text(source: Path, target: Path) -> None:
    names = {b"new\nline", b"\xff\xfe", "grün".encode(), b"x" * 255, b"-rf", b" "}
    for name in names:
        Path(os.fsdecode(os.path.join(os.fsencode(source), name))).write_bytes(name)
    copy_tree(source, target)
    assert set(os.listdir(os.fsencode(target))) == names
    assert listing(target) == listing(source)


def test_names_of_one_file_stay_names_of_one_file(source: Path, target: Path) -> None:
    (source / "a").mkdir()
    (source / "a" / "one").write_text("same")
    (source / "two").hardlink_to(source / "a" / "one")
    (source / "alone").write_text("same")
    copy_tree(source, target)
    assert (target / "two").stat().st_ino == (target / "a" / "one").stat().st_ino
    assert (target / "two").stat().st_nlink == 2
    assert (target / "alone").stat().st_nlink == 1


def test_holes_take_no_room_in_a_copy(source: Path, target: Path) -> None:
    with (source / "sparse").open("wb") as file:
        file.write(b"begin")
        file.seek(300 * MIB)
        file.write(b"middle")
        file.truncate(600 * MIB)
    copy_tree(source, target)
    status = (target / "sparse").stat()
    assert status.st_size == 600 * MIB
    assert status.st_blocks * 512 < 2 * MIB
    with (target / "sparse").open("rb") as file:
        assert file.read(5) == b"begin"
        assert file.seek(300 * MIB) and file.read(7) == b"middle\0"


def test_large_and_odd_sized_files_are_copied_whole(source: Path, target: Path) -> None:
    for size in (1, 65535, 65536, 65537, 3 * MIB + 7):
        (source / str(size)).write_bytes(os.urandom(size))
    copy_tree(source, target)
    assert listing(target) == listing(source)


def test_a_tree_deeper_than_any_path_can_be_copied_measured_and_removed(source: Path, target: Path) -> None:
    depth = 1500
    here = os.open(source, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("level", dir_fd=here)
        deeper = os.open("level", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    os.close(here)
    copy_tree(source, target)
    assert tree_bytes(target) == tree_bytes(source) > 0
    here = os.open(target, os.O_RDONLY)
    for _ in range(depth):
        deeper = os.open("level", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    assert os.listdir(here) == ["bottom"]
    os.close(here)
    for tree in (source, target):
        remove_tree(tree)
        assert not tree.exists()


def test_a_copy_in_two_steps_ends_like_the_original(source: Path, target: Path) -> None:
    for name in ("kept", "changed", "removed", "linked", "becomes-directory"):
        (source / name).write_text(name)
    (source / "tree" / "below").mkdir(parents=True)
    (source / "tree" / "below" / "file").write_text("old")
    (source / "gone" / "below").mkdir(parents=True)
    copy = TreeCopy(source, target)
    copy.first()
    (source / "changed").write_text("CHANGED")  # as long as before
    (source / "removed").unlink()
    (source / "added").hardlink_to(source / "linked")
    (source / "becomes-directory").unlink()
    (source / "becomes-directory").mkdir()
    (source / "becomes-directory" / "new").write_text("new")
    (source / "tree").rename(source / "moved")
    (source / "gone" / "below").rmdir()
    (source / "gone").rmdir()
    (source / "kept").chmod(0o600)
    copy.last()
    assert listing(target) == listing(source)
    assert (target / "added").stat().st_ino == (target / "linked").stat().st_ino


def test_a_directory_that_got_the_number_of_the_file_it_replaces_is_copied(
    source: Path, target: Path
) -> None:
    (source / "file").write_text("old")
    copy = TreeCopy(source, target)
    copy.first()
    (source / "file").unlink()
    (source / "file").mkdir()
    (source / "file" / "new").write_text("new")
    # What file systems do now and then cannot be asked of them.
    marks = copy._marks[""]
    marks["file"] = marks["file"]._replace(inode=(source / "file").stat().st_ino)
    copy.last()
    assert listing(target) == listing(source)


def test_a_directory_swapped_for_a_symlink_is_never_followed(
    source: Path, target: Path, tmp_path: Path
) -> None:
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "shadow").write_text("of the host")
    (source / "d").symlink_to(tmp_path / "secret")
    copy_tree(source, target)
    assert (target / "d").is_symlink()
    remove_tree(target)
    assert (tmp_path / "secret" / "shadow").read_text() == "of the host"


def test_a_file_with_several_names_is_measured_once(source: Path) -> None:
    (source / "one").write_bytes(b"x" * MIB)
    before = tree_bytes(source)
    (source / "two").hardlink_to(source / "one")
    assert tree_bytes(source) == before >= MIB


def test_a_tree_is_removed_whatever_its_modes(source: Path) -> None:
    (source / "shut" / "inner").mkdir(parents=True)
    (source / "shut" / "inner" / "file").write_text("x")
    (source / "shut" / "inner").chmod(0)
    (source / "shut").chmod(0)
    remove_tree(source)
    remove_tree(source)
    assert not source.exists()


def test_a_removal_that_was_stopped_is_finished_by_the_next(source: Path) -> None:
    for name in ("a/b/c", "d/e/f", "g"):
        (source / name).mkdir(parents=True)
        (source / name / "file").write_text("x")
    for removals in range(1, 20):
        left = iter(range(removals))
        try:
            remove_tree(source, lambda left=left: next(left, None) is None)  # type: ignore[misc]
        except InterruptedError:
            continue
        break
    assert removals > 2
    assert not source.exists()


def test_names_like_those_that_a_removal_gives_do_not_stop_it(source: Path) -> None:
    for number in range(20, 25):
        for inner in range(30):
            (source / f".removed-{os.getpid()}-{number}" / f"{inner}" / "most").mkdir(parents=True)
    remove_tree(source)
    assert not source.exists()
