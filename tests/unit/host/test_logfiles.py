"""Logs that others append to."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from atoll.host import append_log, forget_log_head, read_log

MIB = 1 << 20


def test_a_flooded_log_keeps_its_newest_lines_where_they_were(tmp_path: Path) -> None:
    log = tmp_path / "log"
    line = b"x" * 99 + b"\n"
    with log.open("ab", buffering=0) as writer:
        writer.write(line * 50_000)
        assert forget_log_head(log, most_bytes=4 * MIB, keep_bytes=MIB)
        writer.write(b"last\n")
    assert log.stat().st_size == 5_000_005
    assert log.stat().st_blocks * 512 < 2 * MIB
    data, start = read_log(log, 0, 8 * MIB)
    assert start + len(data) == 5_000_005
    assert set(data.splitlines()) == {line.strip(), b"last"}
    assert read_log(log, 5_000_000, 8 * MIB) == (b"last\n", 5_000_000)
    assert not forget_log_head(log, most_bytes=4 * MIB, keep_bytes=MIB)


def test_nothing_is_read_past_the_end_of_a_log_or_of_none(tmp_path: Path) -> None:
    append_log(tmp_path / "log", "one")
    assert read_log(tmp_path / "log", 0, 100) == (b"one\n", 0)
    assert read_log(tmp_path / "log", 4, 100) == (b"", 4)
    assert read_log(tmp_path / "log", 1000, 100) == (b"", 1000)
    assert read_log(tmp_path / "none", 7, 100) == (b"", 7)
    assert not forget_log_head(tmp_path / "none", most_bytes=1, keep_bytes=1)


def test_no_link_leads_a_line_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("")
    os.symlink("elsewhere", tmp_path / "log")
    with pytest.raises(OSError):
        append_log(tmp_path / "log", "one")
    with pytest.raises(OSError):
        read_log(tmp_path / "log", 0, 100)
    assert (tmp_path / "elsewhere").read_text() == ""
