"""Journals: what was written is there, and what is none is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from atoll.errors import DamagedError, InUseError
from atoll.evals import Results, Row
from atoll.evals.journal import Header, Journal, read_journal, request_digest

HEADER = Header(evaluation="e1", snapshot_id="s1", start_hash="h", request="r", strategies=["b", "a"])


def row(strategy: str, repeat: int = 0, **more: Any) -> Row:
    return Row(strategy=strategy, repeat=repeat, status="passed", start_hash="h", **more)


def test_a_journal_has_what_was_written_and_drops_a_line_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with Journal(path) as journal:
        assert (journal.header, journal.resumed) == (None, False)
        journal.begin(HEADER)
        journal.add(row("a", value={"text": "line\nline\r\u2028", "list": [1, None]}))
    whole = path.read_bytes()
    for cut in (b"", b'{"strategy": "b"', b"\xff"):
        path.write_bytes(whole + cut)
        with Journal(path) as journal:
            assert (journal.header, journal.rows) == (HEADER, [row("a", value=journal.rows[0].value)])
            assert journal.rows[0].value["text"] == "line\nline\r\u2028"
            assert journal.resumed
        assert path.read_bytes() == whole
    with Journal(path) as journal:
        journal.add(row("b"))
    assert [each.strategy for each in read_journal(path)[1]] == ["a", "b"]
    assert [each.strategy for each in Results.read(path)] == ["b", "a"]


def test_a_process_that_was_killed_before_the_first_line_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    path.write_bytes(b'{"evaluation":"e')
    with Journal(path) as journal:
        assert journal.header is None
        journal.begin(HEADER)
    assert read_journal(path) == (HEADER, [])


@pytest.mark.parametrize("content", [b"text\n", b"{}\n", b'[1]\n{"a": 2}\n', b"\n", b"\n\n", b"no line"])
def test_another_file_is_refused_and_not_changed(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DamagedError):
        Journal(path)
    with pytest.raises(DamagedError):
        read_journal(path)
    assert path.read_bytes() == content


def test_an_empty_file_is_no_result(tmp_path: Path) -> None:
    (tmp_path / "empty").touch()
    with pytest.raises(DamagedError):
        Results.read(tmp_path / "empty")


def test_two_processes_cannot_write_one_journal(tmp_path: Path) -> None:
    with Journal(tmp_path / "journal"):
        with pytest.raises(InUseError):
            Journal(tmp_path / "journal")
    with Journal(tmp_path / "journal"):
        pass


def test_a_request_is_its_strategies_in_any_order_and_its_code() -> None:
    one = request_digest({"a": 1, "b": {"x": 1, "y": 2}}, "v1")
    assert request_digest({"b": {"y": 2, "x": 1}, "a": 1}, "v1") == one
    assert request_digest({"a": 1, "b": {"x": 1, "y": 3}}, "v1") != one
    assert request_digest({"a": 1, "b": {"x": 1, "y": 2}}, "v2") != one
