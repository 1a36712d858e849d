"""The audit log: what is written stays, and each later change of it shows."""

from __future__ import annotations

import errno
import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from atoll.audit import AuditLog, log_files, mark_of, read_entries, read_head, read_newest, verify, writing
from atoll.errors import NoSpaceError
from atoll.types import AuditAnchor, AuditPage
from tests.waiting import until

KEY = bytes(range(32))
FILE_BYTES = 4000


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., AuditLog]]:
    logs = []

    def make(key: bytes = KEY, **options: int) -> AuditLog:
        log = AuditLog(tmp_path, lambda _: key, time.time, **{"file_bytes": FILE_BYTES, **options})
        log.open()
        logs.append(log)
        return log

    yield make
    for log in logs:
        log.close()


def written(make: Callable[..., AuditLog], count: int = 60, **options: int) -> None:
    log = make(**options)
    for number in range(count):
        log.note("sandbox.paused", sandbox_id=f"s{number}", details={"n": number})
    log.close()


def faults(directory: Path, key: bytes = KEY) -> list[tuple[str, int | None, int | None]]:
    return [(one.kind, one.first, one.last) for one in verify(directory, key).faults]


def change(directory: Path, sequence: int, by: Callable[[list[bytes], int], None]) -> None:
    """Change the lines of the file that has an entry."""
    path = [each for each in log_files(directory) if int(each.stem) <= sequence][-1]
    lines = path.read_bytes().splitlines(keepends=True)
    by(lines, sequence - int(path.stem))
    path.write_bytes(b"".join(lines))


def test_entries_are_read_in_their_order_page_by_page(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    written(opened)
    assert len(log_files(tmp_path)) > 2
    after, seen = 0, []
    while True:
        page = read_entries(tmp_path, after=after, limit=7, wanted=lambda entry: entry.sequence % 2 == 0)
        if not page.entries:
            break
        assert len(page.entries) <= 7
        seen += [entry.sequence for entry in page.entries]
        after = page.next
    assert seen == list(range(2, 61, 2))
    (last,) = read_entries(tmp_path, after=59, limit=9, wanted=lambda _: True).entries
    assert (last.act, last.sandbox_id, last.details, last.outcome) == (
        "sandbox.paused",
        "s59",
        {"n": 59},
        "ok",
    )
    assert abs(last.at - time.time()) < 60


def test_the_newest_entries_are_read_from_the_end(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    assert read_newest(tmp_path, count=9, wanted=lambda _: True) == AuditPage(entries=[], next=0)
    written(opened)
    with log_files(tmp_path)[-1].open("ab") as file:
        file.write(b'{"sequence":61,')
    with patch("atoll.audit.reading._BLOCK_BYTES", 100):
        page = read_newest(tmp_path, count=7, wanted=lambda entry: entry.sequence % 2 == 0)
    assert [entry.sequence for entry in page.entries] == list(range(48, 61, 2))
    assert page.next == 60
    marks = [mark_of("sandbox_id", "s7")]
    for page in (
        read_newest(tmp_path, count=7, wanted=lambda _: True, marks=marks),
        read_entries(tmp_path, after=0, limit=7, wanted=lambda _: True, marks=marks),
    ):
        assert [entry.sandbox_id for entry in page.entries] == ["s7"]
        assert page.next == 60


def test_a_smaller_log_takes_effect_at_once(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    written(opened, 500)
    written(opened, 1, kept_bytes=5 * FILE_BYTES)
    assert sum(path.stat().st_size for path in log_files(tmp_path)) <= 6 * FILE_BYTES
    assert faults(tmp_path) == []


def test_a_log_goes_on_with_the_next_process(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    for _ in range(4):
        written(opened, 25)
    report = verify(tmp_path, KEY)
    assert (report.whole, report.entries, report.first, report.last) == (True, 100, 1, 100)
    head = read_head(tmp_path, KEY)
    assert head is not None
    assert head.sequence == 100


def test_each_change_is_named(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    def edit(lines: list[bytes], at: int) -> None:
        lines[at] = lines[at].replace(b"paused", b"killed")

    def remove(lines: list[bytes], at: int) -> None:
        del lines[at]

    def swap(lines: list[bytes], at: int) -> None:
        lines[at], lines[at + 1] = lines[at + 1], lines[at]

    def repeat(lines: list[bytes], at: int) -> None:
        lines.insert(at, lines[at - 1])

    def scribble(lines: list[bytes], at: int) -> None:
        lines[at] = b"\xff\x00 rubbish\n"

    for by, expected in (
        (edit, [("changed", 5, None)]),
        (remove, [("missing", 5, 5)]),
        (swap, [("missing", 5, 5), ("misplaced", 5, None)]),
        (repeat, [("misplaced", 4, None)]),
        (scribble, [("unreadable", 5, None)]),
    ):
        for path in tmp_path.iterdir():
            path.unlink()
        written(opened)
        change(tmp_path, 5, by)
        assert faults(tmp_path) == expected, by.__name__


def test_a_cut_tail_a_missing_file_and_a_missing_head_are_named(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    written(opened)
    kept = {path: path.read_bytes() for path in tmp_path.iterdir()}
    files = log_files(tmp_path)
    second, third, newest = int(files[1].stem), int(files[2].stem), int(files[-1].stem)

    def restore() -> None:
        for path, data in kept.items():
            path.write_bytes(data)

    files[1].unlink()
    assert faults(tmp_path) == [("missing", second, third - 1)]
    restore()
    files[0].unlink()
    assert faults(tmp_path) == [("missing", 1, second - 1)]
    restore()
    files[-1].unlink()
    assert faults(tmp_path) == [("cut", newest, 60)]
    restore()
    files[-1].write_bytes(kept[files[-1]][:-30])
    assert faults(tmp_path) == [("cut", 60, 60)]
    restore()
    (tmp_path / "head.json").unlink()
    assert faults(tmp_path) == [("no head", None, None)]
    restore()
    (tmp_path / "head.json").write_bytes(
        re.sub(rb'"sequence":.', b'"sequence":9', kept[tmp_path / "head.json"])
    )
    assert faults(tmp_path) == [("no head", None, None)]
    restore()
    assert faults(tmp_path) == []


def test_who_has_not_the_key_cannot_make_the_chain_anew(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    written(lambda **options: opened(bytes(32), **options))
    report = verify(tmp_path, KEY)
    assert report.entries == 0
    assert len(report.faults) == 61
    assert {one.kind for one in report.faults} == {"changed", "no head"}


def test_a_line_of_another_log_with_the_same_key_is_misplaced(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    log = AuditLog(other, lambda _: KEY, time.time)
    log.open()
    for _ in range(9):
        log.note("sandbox.killed")
    log.close()
    line = log_files(other)[0].read_bytes().splitlines(keepends=True)[4]
    written(opened)

    def replace(lines: list[bytes], at: int) -> None:
        lines[at] = line

    change(tmp_path, 5, replace)
    assert faults(tmp_path) == [("misplaced", 5, None), ("misplaced", 6, None)]


def test_what_a_process_leaves_of_a_line_is_cut_off(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    written(opened, 5)
    newest = log_files(tmp_path)[-1]
    with newest.open("ab") as file:
        file.write(b'{"sequence":6,"at":1')
    assert faults(tmp_path) == []
    written(opened, 5)
    report = verify(tmp_path, KEY)
    assert (report.whole, report.entries) == (True, 10)


def test_a_process_that_is_killed_loses_no_line(tmp_path: Path) -> None:
    for _ in range(5):
        before = verify(tmp_path, KEY).last
        reading, telling = os.pipe()
        pid = os.fork()
        if pid == 0:
            writing.PATIENCE_S = 60  # the disk of a test may be slow
            log = AuditLog(tmp_path, lambda _: KEY, time.time, file_bytes=FILE_BYTES)
            log.open()
            while True:
                log.note("sandbox.woken")
                log.settle()
                os.write(telling, b"%d\n" % log.sequence)
        os.close(telling)
        with open(reading, "rb") as told:
            for _ in range(200):
                told.readline()
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            last = int((told.read().splitlines() or [b"0"])[-1])
        report = verify(tmp_path, KEY)
        assert report.whole
        assert report.last >= max(last, before + 200)


def anchored(make: Callable[..., AuditLog], counts: tuple[int, ...]) -> list[AuditAnchor]:
    """Write so many entries, and keep the head after each time."""
    anchors = []
    for count in counts:
        log = make()
        for number in range(count):
            log.note("sandbox.paused", sandbox_id=f"s{number}")
        log.close()
        head = log.anchor()
        assert head is not None
        anchors.append(head)
    return anchors


def test_anchors_say_how_far_the_log_is_as_it_was(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    anchors = anchored(opened, (20, 20, 20))
    written(opened, 5)
    report = verify(tmp_path, KEY, anchors=anchors)
    assert (report.whole, report.anchored, report.last) == (True, 60, 65)
    assert verify(tmp_path, KEY).anchored is None
    assert verify(tmp_path, KEY, anchors=anchors[:1]).anchored == 20


def test_anchors_show_what_whoever_has_the_key_has_changed(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    anchors = anchored(opened, (20, 20, 20))
    entries = read_entries(tmp_path, after=0, limit=99, wanted=lambda _: True).entries
    for path in tmp_path.iterdir():
        path.unlink()
    log = opened()
    for entry in entries[:50]:  # the rest is cut off, too
        log.note("sandbox.paused", sandbox_id="other" if entry.sequence == 30 else entry.sandbox_id)
    log.close()
    assert verify(tmp_path, KEY).whole
    report = verify(tmp_path, KEY, anchors=anchors)
    # the times differ as well, so already the first anchor does
    assert [(one.kind, one.first, one.last) for one in report.faults] == [
        ("unlike anchor", 1, 20),
        ("cut", 51, 60),
    ]
    assert report.anchored is None
    assert str(report.faults[1]) == "anchors: entries 51 to 60 cut"


def test_an_anchor_that_another_key_made_is_named(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    (anchor,) = anchored(opened, (20,))
    strange = AuditAnchor(anchor.sequence, anchor.digest, "é")
    report = verify(tmp_path, KEY, anchors=[anchor, strange])
    assert [(one.kind, one.file, one.first) for one in report.faults] == [("unreadable", "anchors", 20)]
    assert report.anchored == 20
    wrong = AuditAnchor(10**6, anchor.digest, anchor.mac)
    assert not verify(tmp_path, KEY, anchors=[wrong]).whole


def test_the_oldest_files_go_and_the_chain_says_so(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    written(opened, 500, kept_bytes=5 * FILE_BYTES)
    until(lambda: sum(path.stat().st_size for path in log_files(tmp_path)) < 7 * FILE_BYTES)
    report = verify(tmp_path, KEY)
    assert report.whole
    assert report.first > 100
    log_files(tmp_path)[0].unlink()
    assert [one.kind for one in verify(tmp_path, KEY).faults] == ["missing"]


def test_what_a_full_disk_refuses_is_written_later_and_nothing_more_is_done_meanwhile(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    log = opened()
    log.note("sandbox.paused")
    assert log.writer.wait(1, 60)
    real, full = os.write, [True]

    def write(fd: int, data: bytes) -> int:
        if full[0]:
            if len(data) % 2:
                return real(fd, data[: len(data) // 2])
            raise OSError(errno.ENOSPC, "no space")
        return real(fd, data)

    with patch("atoll.audit.writing.os.write", write), patch("atoll.audit.log._BEHIND_BYTES", 2000):
        for number in range(20):
            log.note("sandbox.paused", details={"n": "x" * number})
        with pytest.raises(NoSpaceError, match="cannot be written"):
            log.check()
        assert verify(tmp_path, KEY).last == 1
        full[0] = False
        until(lambda: verify(tmp_path, KEY).last == 21)
        log.check()
    log.close()
    assert verify(tmp_path, KEY).whole


def test_a_change_of_the_first_line_is_one_fault(opened: Callable[..., AuditLog], tmp_path: Path) -> None:
    def edit(lines: list[bytes], at: int) -> None:
        lines[at] = lines[at].replace(b"paused", b"killed")

    written(opened, 5)
    change(tmp_path, 1, edit)
    assert faults(tmp_path) == [("changed", 1, None)]


def test_a_log_is_whole_before_and_right_after_its_first_entry(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    log = opened()
    assert log.verify().whole
    log.note("sandbox.paused")
    assert log.verify().whole
    assert log.verify().entries == 1


def test_a_disk_that_hangs_delays_an_act_once_and_its_lines_are_written_when_it_goes_on(
    opened: Callable[..., AuditLog], tmp_path: Path
) -> None:
    log = opened()
    log.note("sandbox.created")
    assert log.writer.wait(1, 60)
    hangs, goes_on, told = threading.Event(), threading.Event(), []
    log.writer.on_late = lambda: told.append(log.writer.is_late)
    real = os.write

    def write(fd: int, data: bytes) -> int:
        hangs.set()
        goes_on.wait(60)
        return real(fd, data)

    with patch("atoll.audit.writing.os.write", write):
        log.note("sandbox.paused")
        log.settle()
        assert hangs.is_set()
        assert told == [True]
        with patch("atoll.audit.writing.PATIENCE_S", 3600):
            for _ in range(100):  # none of these waits
                log.note("sandbox.paused")
                log.settle()
        assert verify(tmp_path, KEY).last == 1
        goes_on.set()
        until(lambda: told == [True, False])
    assert log.verify().last == 102
    log.close()
    assert verify(tmp_path, KEY).whole


def test_a_disk_that_hangs_for_ever_does_not_keep_the_supervisor_from_ending(
    opened: Callable[..., AuditLog], caplog: pytest.LogCaptureFixture
) -> None:
    log = opened()
    goes_on = threading.Event()
    with (
        patch("atoll.audit.writing.os.fdatasync", lambda _: goes_on.wait(60)),
        patch("atoll.audit.writing._CLOSE_S", 0.01),
    ):
        log.note("sandbox.paused")
        log.close()
        assert "does not answer" in caplog.text
        goes_on.set()
