from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll.host import (
    BrokenChecksumsError,
    CheckedTree,
    Pace,
    checksummed_bytes,
    verify_checksums,
    write_checksums,
)

MIB = 1 << 20


class Checksummed:
    """A tree with something of each kind that a guest can leave in one, and its checksums."""

    def __init__(self, place: Path) -> None:
        self.tree, self.checksums = place / "tree", place / "checksums"
        (self.tree / "deep" / "deeper").mkdir(parents=True)
        self.file = self.tree / "deep" / "deeper" / "file"
        self.file.write_bytes(b"content" * 1000)
        (self.tree / "deep" / "link").symlink_to("../nowhere\nat all")
        (self.tree / "locked").write_bytes(b"secret")
        (self.tree / "locked").chmod(0 if os.geteuid() == 0 else 0o400)
        os.mkfifo(self.tree / "fifo")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self.tree / "socket"))
        (self.tree / "one").write_bytes(b"content" * 1000)
        (self.tree / "deep" / "two").hardlink_to(self.tree / "one")
        self.odd = Path(os.fsdecode(os.fsencode(self.tree) + b"/new\nline\xff"))
        self.odd.write_bytes(b"odd")
        os.setxattr(self.tree / "deep", "user.note", b"kept")
        with (self.tree / "sparse").open("wb") as file:
            file.truncate(3 * MIB)
            file.seek(2 * MIB)
            file.write(b"here")
        self.made = write_checksums(self.tree, self.checksums, Pace())

    def check(self) -> CheckedTree:
        return verify_checksums(self.tree, self.checksums, Pace())

    def flip(self, path: Path, at: int) -> None:
        """Change a byte as a failing disk does: times stay."""
        times = os.stat(path)
        with path.open("r+b") as file:
            file.seek(at)
            byte = file.read(1)
            file.seek(at)
            file.write(bytes([byte[0] ^ 1]))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


@pytest.fixture
def kept(tmp_path: Path) -> Checksummed:
    return Checksummed(tmp_path)


def test_a_tree_that_nobody_touched_whole(kept: Checksummed) -> None:
    result = kept.check()
    assert (result.entries, result.damages) == (kept.made.entries, [])
    assert result.entries == 12
    assert checksummed_bytes(kept.checksums) == kept.made.size_bytes == result.size_bytes


def test_a_flipped_byte_is_found_and_its_file_named(kept: Checksummed) -> None:
    kept.flip(kept.file, 3000)
    (damage,) = kept.check().damages
    assert (damage.path, damage.what) == ("deep/deeper/file", "its content has changed")


def test_a_flipped_byte_behind_a_hole_is_found_and_a_filled_hole_is_none(kept: Checksummed) -> None:
    times = os.stat(kept.tree / "sparse")
    with (kept.tree / "sparse").open("r+b") as file:
        file.write(bytes(MIB))
    os.utime(kept.tree / "sparse", ns=(times.st_atime_ns, times.st_mtime_ns))
    assert kept.check().damages == []
    kept.flip(kept.tree / "sparse", 2 * MIB + 1)
    assert [damage.path for damage in kept.check().damages] == ["sparse"]


def _rename_over(kept: Checksummed) -> None:
    (kept.tree / "new").write_bytes(b"content" * 1000)
    os.rename(kept.tree / "new", kept.tree / "deep" / "two")


@pytest.mark.parametrize(
    ("harm", "told"),
    [
        (lambda s: s.file.unlink(), "deep/deeper/file: it is missing"),
        (
            lambda s: (s.tree / "deep" / "more").touch(),
            "deep/more: it was not there when atoll made the checksums",
        ),
        (lambda s: os.truncate(s.file, 5), "deep/deeper/file: it has 5 bytes instead of 7000"),
        (lambda s: (s.tree / "locked").chmod(0o644), "locked: its mode is 0644 instead of 0"),
        (lambda s: os.utime(s.odd, ns=(0, 0)), "new\nline\\xff: its modification time has changed"),
        (
            lambda s: os.removexattr(s.tree / "deep", "user.note"),
            "deep: its extended attributes have changed",
        ),
        (_rename_over, "deep/two: its modification time has changed; its hard links have changed"),
        (lambda s: s.tree.chmod(0o700), ".: its mode is 0700"),
    ],
)
def test_what_is_not_as_it_was_is_named(
    kept: Checksummed, harm: Callable[[Checksummed], object], told: str
) -> None:
    harm(kept)
    damages = [f"{damage.path}: {damage.what}" for damage in kept.check().damages]
    assert any(told in damage for damage in damages), damages


def test_a_file_in_the_place_of_a_directory_is_told_once(kept: Checksummed) -> None:
    (kept.tree / "deep" / "deeper" / "file").unlink()
    (kept.tree / "deep" / "deeper").rmdir()
    (kept.tree / "deep" / "deeper").touch()
    told = {damage.path: damage.what for damage in kept.check().damages}
    assert told["deep/deeper"] == "it is a file instead of a directory"
    assert set(told) == {"deep", "deep/deeper"}


def test_a_damaged_file_of_checksums_says_nothing_of_the_tree(kept: Checksummed) -> None:
    kept.flip(kept.checksums, 300)
    with pytest.raises(BrokenChecksumsError):
        kept.check()
    kept.checksums.write_bytes(kept.checksums.read_bytes()[:-40])
    with pytest.raises(BrokenChecksumsError):
        kept.check()


def test_of_many_damages_the_first_are_named_and_all_counted(tmp_path: Path) -> None:
    for number in range(300):
        (tmp_path / "tree" / str(number // 100)).mkdir(parents=True, exist_ok=True)
        (tmp_path / "tree" / str(number // 100) / str(number)).write_text("x")
    write_checksums(tmp_path / "tree", tmp_path / "checksums", Pace())
    for path in (tmp_path / "tree").glob("*/*"):
        path.chmod(0)
    result = verify_checksums(tmp_path / "tree", tmp_path / "checksums", Pace())
    assert (len(result.damages), result.damaged) == (100, 300)


def test_a_tree_deeper_than_any_path_is_recorded_and_checked(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    here = os.open(tmp_path / "tree", os.O_RDONLY)
    for _ in range(600):
        os.mkdir("level-level", dir_fd=here)
        deeper = os.open("level-level", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = deeper
    os.close(os.open("bottom", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    write_checksums(tmp_path / "tree", tmp_path / "checksums", Pace())
    assert verify_checksums(tmp_path / "tree", tmp_path / "checksums", Pace()).damages == []
    os.chmod("bottom", 0o111, dir_fd=here)
    os.close(here)
    (damage,) = verify_checksums(tmp_path / "tree", tmp_path / "checksums", Pace()).damages
    assert damage.path.endswith("level-level/bottom")


def test_times_beyond_64_bits_of_nanoseconds_can_be_recorded(tmp_path: Path) -> None:
    (tmp_path / "tree").mkdir()
    for name, time_s in (("late", 15_000_000_000), ("early", -2_000_000_000)):
        (tmp_path / "tree" / name).touch()
        os.utime(tmp_path / "tree" / name, ns=(0, time_s * 10**9 + 1))
    write_checksums(tmp_path / "tree", tmp_path / "checksums", Pace())
    assert verify_checksums(tmp_path / "tree", tmp_path / "checksums", Pace()).damages == []
