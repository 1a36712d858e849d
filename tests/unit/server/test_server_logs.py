"""A sandbox's log as E2B's clients read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.logs import entries_of, query_of
from atoll.server.e2b.wire import LogEntry

BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
LOG = (
    "early\n2026-01-02T00:00:00Z sandbox created from image base\nhello\n"
    "2026-01-03T00:00:00Z sandbox crashed: gone\nwor\u00fcld\nlast"
)


def found(text: str = LOG, pieces: int = 7, **asked: str) -> list[LogEntry]:
    async def texts() -> AsyncIterator[str]:
        for start in range(0, len(text), pieces):
            yield text[start : start + pieces]

    return asyncio.run(entries_of(texts(), query_of(asked, "cursor"), BEGAN))


def test_each_line_has_the_moment_of_the_last_event_before_it() -> None:
    lines = [(entry.timestamp.day, entry.message, entry.level, entry.fields["source"]) for entry in found()]
    assert lines == [
        (1, "early", "info", "console"),
        (2, "created from image base", "info", "atoll"),
        (2, "hello", "info", "console"),
        (3, "crashed: gone", "error", "atoll"),
        (3, "wor\u00fcld", "info", "console"),
        (3, "last", "info", "console"),
    ]


def test_lines_are_found_by_moment_level_and_text_in_both_directions() -> None:
    second_ms = str(int(datetime(2026, 1, 2, tzinfo=UTC).timestamp() * 1000))
    assert [entry.message for entry in found(cursor=second_ms, limit="2")] == [
        "created from image base",
        "hello",
    ]
    assert [entry.message for entry in found(cursor=second_ms, direction="backward")] == [
        "hello",
        "created from image base",
        "early",
    ]
    assert [entry.message for entry in found(direction="backward", limit="1")] == ["last"]
    assert [entry.message for entry in found(level="warn")] == ["crashed: gone"]
    assert [entry.message for entry in found(search="ell")] == ["hello"]


def test_a_line_without_an_end_and_a_forged_moment_do_no_harm() -> None:
    (entry,) = found("x" * 1_000_000, pieces=200_000)
    assert len(entry.message) == 8_192
    (entry,) = found("2026-99-99T99:99:99Z sandbox created")
    assert entry.timestamp == BEGAN


@pytest.mark.parametrize(
    "asked",
    [{"direction": "up"}, {"level": "fatal"}, {"search": "x" * 300}, {"cursor": "-1"}, {"limit": "1001"}],
)
def test_a_query_that_makes_no_sense_is_the_clients_fault(asked: dict[str, str]) -> None:
    with pytest.raises(Refusal):
        query_of(asked, "cursor")
