from __future__ import annotations

import contextlib
import errno
import os
import stat
import threading
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.host import Owner, RootedTree

SECRET = "not of this tree"


@pytest.fixture
def tree(tmp_path: Path) -> RootedTree:
    (tmp_path / "data").mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret").write_text(SECRET)
    return RootedTree(tmp_path / "data", tmp_path / "aside", (os.getuid(), os.getgid()))


def written(
    tree: RootedTree, path: str, data: bytes, *, replace: bool = True, mode: int | None = None
) -> None:
    aside, fd = tree.begin_file()
    try:
        os.write(fd, data)
        tree.end_file((aside, fd), path, replace=replace, mode=mode, owner=Owner())
    finally:
        os.close(fd)
        aside.unlink(missing_ok=True)


def number_of(error: pytest.ExceptionInfo[OSError]) -> int:
    return error.value.errno or 0


def test_what_is_written_is_there_and_the_one_it_replaces_leaves_its_mode(
    tree: RootedTree, tmp_path: Path
) -> None:
    written(tree, "/file", b"one", mode=0o600)
    written(tree, "/file", b"two")
    assert (tmp_path / "data" / "file").read_bytes() == b"two"
    assert stat.S_IMODE(tree.stat("/file").status.st_mode) == 0o600
    with pytest.raises(FileExistsError):
        written(tree, "/file", b"three", replace=False)
    assert list((tmp_path / "aside").iterdir()) == []


@pytest.mark.parametrize(
    "target",
    ["{top}/outside", "../outside", "/../outside", "sub/../../outside", "/proc/self/root{top}/outside"],
)
def test_no_link_leads_out_whatever_is_done(tree: RootedTree, tmp_path: Path, target: str) -> None:
    (tmp_path / "data" / "sub").mkdir()
    (tmp_path / "data" / "way").symlink_to(target.format(top=tmp_path))
    before = sorted(path for path in (tmp_path / "outside").rglob("*"))
    for attempt in (
        lambda: tree.open_file("/way/secret"),
        lambda: tree.stat("/way/secret"),
        lambda: tree.list("/way", depth=2, most=10, most_chars=10_000),
        lambda: written(tree, "/way/mine", b"x"),
        lambda: tree.make_directory("/way/mine", parents=False, mode=None, owner=Owner()),
        lambda: tree.set_attributes("/way/secret", mode=0o777, owner=Owner()),
        lambda: tree.remove("/way/secret"),
    ):
        with pytest.raises(OSError) as error:
            attempt()
        assert number_of(error) in (errno.ENOENT, errno.ELOOP, errno.ENOTDIR, errno.EXDEV)
    assert sorted(path for path in (tmp_path / "outside").rglob("*")) == before
    assert (tmp_path / "outside" / "secret").read_text() == SECRET
    assert [entry.target for entry in tree.list("/", depth=5, most=10, most_chars=10_000)][
        -1
    ] == target.format(top=tmp_path)
    tree.remove("/way")
    assert (tmp_path / "outside" / "secret").exists()


def test_an_absolute_link_starts_at_the_top(tree: RootedTree, tmp_path: Path) -> None:
    written(tree, "/file", b"inside")
    (tmp_path / "data" / "way").symlink_to("/file")
    fd = tree.open_file("/way")
    try:
        assert os.read(fd, 100) == b"inside"
    finally:
        os.close(fd)


def test_the_last_link_of_a_path_is_changed_and_replaced_itself(tree: RootedTree, tmp_path: Path) -> None:
    written(tree, "/file", b"stays", mode=0o600)
    (tmp_path / "data" / "way").symlink_to("file")
    with pytest.raises(OSError) as error:
        tree.set_attributes("/way", mode=0o777, owner=Owner())
    assert number_of(error) == errno.EINVAL
    written(tree, "/way", b"new")
    assert (tmp_path / "data" / "file").read_bytes() == b"stays"
    assert tree.stat("/way").target is None


def test_a_pipe_is_told_of_and_never_opened(tree: RootedTree, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "data" / "pipe")
    with pytest.raises(OSError) as error:
        tree.open_file("/pipe")
    assert number_of(error) == errno.EINVAL
    with pytest.raises(OSError):
        tree.set_attributes("/pipe", mode=0o777, owner=Owner())
    assert [entry.path for entry in tree.list("/", depth=1, most=10, most_chars=10_000)] == ["/pipe"]
    tree.remove("/pipe")
    assert tree.list("/", depth=1, most=10, most_chars=10_000) == []


def test_a_list_has_levels_an_order_and_an_end(tree: RootedTree) -> None:
    tree.make_directory("/b/c/d", parents=True, mode=None, owner=Owner())
    written(tree, "/a", b"1")
    written(tree, "/b-", b"2")
    assert [entry.path for entry in tree.list("/", depth=2, most=10, most_chars=10_000)] == [
        "/a",
        "/b",
        "/b/c",
        "/b-",
    ]
    assert [entry.path for entry in tree.list("/b", depth=9, most=10, most_chars=10_000)] == [
        "/b/c",
        "/b/c/d",
    ]
    with pytest.raises(OSError) as error:
        tree.list("/", depth=9, most=4, most_chars=10_000)
    assert number_of(error) == errno.EFBIG
    all_chars = len("/a/b/b/c/b/c/d/b-")
    assert len(tree.list("/", depth=9, most=5, most_chars=all_chars)) == 5
    with pytest.raises(OSError) as error:
        tree.list("/", depth=9, most=5, most_chars=all_chars - 1)
    assert number_of(error) == errno.EFBIG


def test_names_that_a_list_has_not_come_to_count_already(tree: RootedTree) -> None:
    for depth in range(8):
        for name in ("a", *"bcdefgh"):
            tree.make_directory("/" + "a/" * depth + name, parents=True, mode=None, owner=Owner())
    read = []
    really = os.scandir
    with patch("os.scandir", lambda fd: read.append(fd) or really(fd)), pytest.raises(OSError) as error:
        tree.list("/", depth=9, most=20, most_chars=10_000)
    assert number_of(error) == errno.EFBIG
    assert len(read) == 3


def test_a_full_directory_goes_as_a_whole_even_if_it_may_not_be_read(
    tree: RootedTree, tmp_path: Path
) -> None:
    tree.make_directory("/deep/er", parents=True, mode=0, owner=Owner())
    written(tree, "/deep/file", b"x")
    tree.remove("/deep")
    assert list((tmp_path / "data").iterdir()) == list((tmp_path / "aside").iterdir()) == []


def test_who_swaps_directories_for_links_meanwhile_gains_nothing(tree: RootedTree, tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "way").mkdir()
    (data / "way" / "secret").write_text("mine")
    (data / "link").symlink_to(tmp_path / "outside")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            os.rename(data / "way", data / "aside")
            os.rename(data / "link", data / "way")
            os.rename(data / "way", data / "link")
            os.rename(data / "aside", data / "way")

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        for number in range(300):
            with contextlib.suppress(OSError):
                fd = tree.open_file("/way/secret")
                try:
                    assert os.read(fd, 100) == b"mine"
                finally:
                    os.close(fd)
            with contextlib.suppress(OSError):
                written(tree, f"/way/new{number}", b"x")
            with contextlib.suppress(OSError):
                tree.remove(f"/way/new{number - 1}")
            with contextlib.suppress(OSError):
                assert not any(
                    "secret" in entry.path
                    for entry in tree.list("/link", depth=2, most=1000, most_chars=100_000)
                )
    finally:
        over.set()
        swapper.join()
    assert [path.name for path in (tmp_path / "outside").iterdir()] == ["secret"]
    assert (tmp_path / "outside" / "secret").read_text() == SECRET
