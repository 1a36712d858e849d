"""A sandbox's log in the form of E2B's API: lines with a time, a level and fields."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime
from typing import Literal

import msgspec

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.listing import number_of
from atoll.server.e2b.wire import Level, LogEntry

LIMIT_MOST = 1000
_LINE_MOST = 8_192
_SEARCH_MOST = 256
_LEVELS: tuple[Level, ...] = ("debug", "info", "warn", "error")
_OURS = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z sandbox (.*)", re.DOTALL)


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query for lines of a log.

    Args:
        cursor_ms: Start at this moment, in Unix milliseconds, and go forward, or back with ``newest_first``;
            None means the end.
        newest_first: Whether to go back in time.
        limit: The most lines to return.
        level: The lowest level to return.
        search: Only lines that contain this text.
    """

    cursor_ms: int | None = None
    newest_first: bool = False
    limit: int = LIMIT_MOST
    level: Level = "debug"
    search: str = ""


def query_of(asked: Mapping[str, str], cursor: str) -> Query:
    """Return the query in the query part of a request.

    Args:
        asked: The query part.
        cursor: The name of its cursor parameter.

    Raises:
        Refusal: The query is invalid.
    """
    direction, level = asked.get("direction") or "forward", asked.get("level") or "debug"
    if direction not in ("forward", "backward"):
        raise Refusal(400, "direction must be forward or backward")
    if level not in _LEVELS:
        raise Refusal(400, f"level must be one of {', '.join(_LEVELS)}")
    search = asked.get("search", "")
    if len(search) > _SEARCH_MOST:
        raise Refusal(400, f"search must have at most {_SEARCH_MOST} characters")
    return Query(
        cursor_ms=number_of(asked, cursor, 0) if asked.get(cursor) else None,
        newest_first=direction == "backward",
        limit=number_of(asked, "limit", LIMIT_MOST, most=LIMIT_MOST),
        level=level,
        search=search,
    )


async def entries_of(texts: AsyncIterator[str], query: Query, began: datetime) -> list[LogEntry]:
    """Return the lines of a log that match.

    Args:
        texts: The log, in pieces.
        query: Selects the lines.
        began: The time of lines before the first one with its own time.
    """
    found: deque[LogEntry] = deque(maxlen=query.limit if query.newest_first else None)
    async for entry in _entries(texts, began):
        if not query.newest_first and len(found) >= query.limit:
            break
        if _fits(entry, query):
            found.append(entry)
    return list(reversed(found)) if query.newest_first else list(found)


async def _entries(texts: AsyncIterator[str], moment: datetime) -> AsyncIterator[LogEntry]:
    async for line in _lines(texts):
        source: Literal["atoll", "console"] = "console"
        message = line
        if match := _OURS.fullmatch(line):
            stamp = _moment(match[1])
            if stamp is not None:
                moment, message, source = stamp, match[2], "atoll"
        level: Level = "error" if source == "atoll" and message.startswith("crashed") else "info"
        yield LogEntry(timestamp=moment, message=message, level=level, fields={"source": source})


async def _lines(texts: AsyncIterator[str]) -> AsyncIterator[str]:
    rest = ""
    async for text in texts:
        *whole, rest = (rest + text).split("\n")
        for line in whole:
            yield line[:_LINE_MOST].rstrip("\r")
        # a guest may never end a line
        rest = rest[:_LINE_MOST]
    if rest:
        yield rest


def _moment(text: str) -> datetime | None:
    try:
        return datetime.fromisoformat(text).replace(tzinfo=UTC)
    except ValueError:  # a guest may write something that looks like a time
        return None


def _fits(entry: LogEntry, query: Query) -> bool:
    if _LEVELS.index(entry.level) < _LEVELS.index(query.level) or query.search not in entry.message:
        return False
    if query.cursor_ms is None:
        return True
    at_ms = int(entry.timestamp.timestamp() * 1000)
    return at_ms <= query.cursor_ms if query.newest_first else at_ms >= query.cursor_ms
