from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from atoll import errors
from atoll.guest import (
    error_from,
    file_from,
    files_from,
    matches_from,
    processes_from,
    search_end_from,
    stats_from,
    time_from,
)

FILE = (
    b'{"name": "a", "path": "/a", "kind": "file", "size_bytes": 1, "mode": 420, "owner": "user", "group": "user",'
    b' "modified_at": 1.5}'
)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("invalid", errors.InvalidSpecError),
        ("user_unknown", errors.InvalidSpecError),
        ("cwd_missing", FileNotFoundError),
        ("program_missing", FileNotFoundError),
        ("denied", PermissionError),
        ("process_not_found", errors.ProcessNotFoundError),
        ("file_missing", FileNotFoundError),
        ("file_taken", FileExistsError),
        ("not_a_directory", NotADirectoryError),
        ("is_a_directory", IsADirectoryError),
        ("no_space", errors.NoSpaceError),
        ("busy", errors.InUseError),
        ("internal", errors.AgentError),
        ("of_a_later_version", errors.AgentError),
    ],
)
def test_each_code_of_the_agent_becomes_one_class(code: str, kind: type[Exception]) -> None:
    error = error_from(400, b'{"code": "%s", "message": "what, which"}' % code.encode())
    assert isinstance(error, kind)
    assert error.message == "what, which"


def test_an_agent_that_lacks_a_route_or_an_operation_is_an_older_one() -> None:
    for status, message in (
        (404, "there is no route POST /atoll/search"),
        (400, "there is no operation copy"),
    ):
        error = error_from(status, b'{"code": "invalid", "message": "%s"}' % message.encode())
        assert isinstance(error, errors.UnsupportedError)
    assert isinstance(error_from(400, b'{"code": "invalid", "message": "x"}'), errors.InvalidSpecError)


def test_a_search_is_read_into_values() -> None:
    (match,) = matches_from(b'[{"path": "/a", "line": 1, "column": 2, "text": "x"}]')
    assert (match.path, match.line, match.column, match.text, match.cut) == ("/a", 1, 2, "x", False)
    assert search_end_from(b'{"files": 3, "truncated": true}').files == 3


@pytest.mark.parametrize("body", [b"", b"<html>", b"\xff\xfe", b'{"code": 7}', b'{"message": null}'])
def test_an_error_answer_that_says_nothing_is_still_an_error(body: bytes) -> None:
    error = error_from(500, body)
    assert isinstance(error, errors.AgentError)
    assert "500" in error.message


def test_a_message_of_a_guest_is_cut_to_a_length_that_a_log_bears() -> None:
    assert len(error_from(500, b'{"message": "%s"}' % (b"x" * 100_000)).message) == 2000


def test_files_are_read_into_values() -> None:
    assert file_from(b'{"file": %s}' % FILE).size_bytes == 1
    assert [info.name for info in files_from(b'{"files": [%s]}' % FILE)] == ["a"]


@pytest.mark.parametrize("body", [b"", b"{}", b'{"file": {"name": "a"}}', b'{"file": %s' % FILE])
def test_a_file_that_is_half_described_is_refused(body: bytes) -> None:
    with pytest.raises(errors.AgentError):
        file_from(body)


@pytest.mark.parametrize("number", [b"1e308", b"-1e308", b"1e14"])
def test_a_time_of_a_file_is_one_that_a_host_can_set(number: bytes) -> None:
    with pytest.raises(errors.AgentError):
        file_from(b'{"file": %s}' % FILE.replace(b'"modified_at": 1.5', b'"modified_at": ' + number))


@pytest.mark.parametrize(
    ("read", "body"),
    [
        (stats_from, b'{"processes": 1, "keep_awake_s": 1e308}'),
        (stats_from, b'{"processes": 1, "wake_at": 1e308}'),
        (time_from, b'{"time_ns": %d}' % (1 << 64)),
        (processes_from, b'{"processes": [{"pid": 1, "started_at_ms": 1e308}]}'),
        (processes_from, b'{"processes": [{"pid": 1, "pty": {"cols": %d}}]}' % (1 << 40)),
        (file_from, b'{"file": %s}' % FILE.replace(b'"size_bytes": 1,', b'"size_bytes": %d,' % (1 << 63))),
    ],
)
def test_every_number_of_a_guest_has_bounds(read: Callable[[bytes], object], body: bytes) -> None:
    with pytest.raises(errors.AgentError):
        read(body)


@pytest.mark.parametrize("row", [b'{"pid":1}', b'{"pid":1,"argv":["",""]}', b"0"])
def test_an_answer_with_more_values_than_a_guest_has_is_refused_before_they_are_made(row: bytes) -> None:
    body = b'{"processes":[' + b",".join([row] * 1_100_000) + b"]}"
    tracemalloc.start()
    try:
        with pytest.raises(errors.AgentError, match="values|length"):
            processes_from(body)
        assert tracemalloc.get_traced_memory()[1] < 2_000_000
    finally:
        tracemalloc.stop()


def test_commas_inside_a_text_are_no_values() -> None:
    commas = b'"' + b"," * 1_200_000 + b'\\""'
    (process,) = processes_from(b'{"processes": [{"pid": 1, "argv": [%s]}]}' % commas)
    assert len(process.argv[0]) == 1_200_001


def test_processes_are_read_with_their_times_in_seconds() -> None:
    row = b'{"pid": 7, "argv": ["a"], "cwd": "/", "user": "user", "started_at_ms": 1500, "pty": {"cols": 1}}'
    (process,) = processes_from(b'{"processes": [%s]}' % row)
    assert (process.started_at, process.pty, process.tag) == (1.5, True, None)
    assert processes_from(b'{"processes": null}') == []
    assert stats_from(b'{"processes": 2, "memory_bytes": 3, "generation": 1}').processes == 2
