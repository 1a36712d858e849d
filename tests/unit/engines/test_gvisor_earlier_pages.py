"""The files that a checkpoint refers to are links in its own directory."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.engines.gvisor.earlier_pages import EarlierPages, earlier_pages_in, take_back


def checkpoint(directory: Path, **earlier: str) -> Path:
    directory.mkdir()
    (directory / "pages.img").write_text("own")
    (directory / "checkpoint.img").write_text("state")
    for number, text in earlier.items():
        (directory / f"pages-{number[1:]}.img").write_text(text)
    return directory


def texts(directory: Path) -> dict[str, str]:
    return {path.name: path.read_text() for path in directory.iterdir()}


def test_only_files_with_a_number_are_earlier_ones_and_they_are_in_order(tmp_path: Path) -> None:
    of = checkpoint(tmp_path / "c", _10="ten", _2="two")
    for name in ("pages-0.img", "pages-x.img", "pages-1.img.new", "pages-01.img", "pages-12345.img"):
        (of / name).write_text("")
    assert list(earlier_pages_in(of)) == [2, 10]


def test_a_checkpoint_and_what_it_refers_to_are_kept_and_offered_to_the_next(tmp_path: Path) -> None:
    earlier = EarlierPages(tmp_path / "kept")
    earlier.keep(checkpoint(tmp_path / "first", _1="older", _3="oldest"))
    assert texts(tmp_path / "kept") == {"pages-1.img": "older", "pages-2.img": "own", "pages-3.img": "oldest"}
    into = tmp_path / "second"
    into.mkdir()
    assert earlier.offer(into) == [into / f"pages-{number}.img" for number in (1, 2, 3)]
    assert texts(into) == texts(tmp_path / "kept")
    take_back(into, [5, 0])
    assert texts(into) == {"pages-1.img": "older"}
    assert (into / "pages-1.img").samefile(tmp_path / "first" / "pages-1.img")


def test_what_was_kept_before_goes(tmp_path: Path) -> None:
    earlier = EarlierPages(tmp_path / "kept")
    earlier.keep(checkpoint(tmp_path / "first", _1="older"))
    (tmp_path / "kept.new").mkdir()  # left by a supervisor that was killed
    earlier.keep(checkpoint(tmp_path / "second"))
    assert texts(tmp_path / "kept") == {"pages-1.img": "own"}
    earlier.keep(None)
    assert not (tmp_path / "kept").exists()


@pytest.mark.parametrize("directory", [None, "missing"])
def test_without_a_directory_nothing_is_offered(tmp_path: Path, directory: str | None) -> None:
    earlier = EarlierPages(None if directory is None else tmp_path / directory)
    into = checkpoint(tmp_path / "c")
    assert earlier.offer(into) == []
    assert earlier_pages_in(into) == {}


def test_a_file_in_memory_is_no_file_of_before(tmp_path: Path) -> None:
    of = checkpoint(tmp_path / "c")
    os.rename(of / "pages.img", tmp_path / "memory")
    (of / "pages.img").symlink_to(tmp_path / "memory")
    earlier = EarlierPages(tmp_path / "kept")
    with patch.object(os, "link", side_effect=OSError(18, "another file system")):
        earlier.keep(of)
    assert not (tmp_path / "kept").exists()


def test_files_that_cannot_be_linked_are_not_offered_at_all(tmp_path: Path) -> None:
    earlier = EarlierPages(tmp_path / "kept")
    earlier.keep(checkpoint(tmp_path / "first", _1="older"))
    into = tmp_path / "second"
    into.mkdir()
    link, count = os.link, 0

    def full(source: Path, target: Path) -> None:
        nonlocal count
        count += 1
        if count == 2:
            raise OSError(31, "too many links")
        link(source, target)

    with patch.object(os, "link", full):
        assert earlier.offer(into) == []
    assert texts(into) == {}
