"""Lists of sandboxes in the form of E2B's API: filters, order, pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import unquote_plus

import msgspec

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.attributes import read
from atoll.server.e2b.views import started_us, state_of
from atoll.server.e2b.wire import State
from atoll.types import SandboxInfo

LIMIT_MOST = 100
_TEXT_MOST = 16_384
_LABELS_MOST = 100


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query for sandboxes: filters, order and page.

    Args:
        states: Only sandboxes in these states.
        metadata: Only sandboxes with all of these labels.
        newest_first: Whether the newest come first.
        after_us: Only sandboxes started at this time or later, in Unix microseconds; None means all.
        template: Id or alias of a template; None means all.
        limit: The most sandboxes on a page.
        token: Start time and id of the last sandbox on the page before; None begins the list.
    """

    states: frozenset[State] = frozenset({"running", "paused"})
    metadata: dict[str, str] = {}
    newest_first: bool = True
    after_us: int | None = None
    template: str | None = None
    limit: int = LIMIT_MOST
    token: tuple[int, str] | None = None


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """A page, the token of the next page, and how many of all matches are running."""

    infos: list[SandboxInfo]
    token: str | None
    running: int


def query_of(asked: Mapping[str, str]) -> Query:
    """Return the query in the query part of a request.

    Raises:
        Refusal: The query is invalid.
    """
    after = asked.get("startedAfter")
    return Query(
        states=_states(asked.get("state")),
        metadata=metadata_of(asked.get("metadata", "")),
        newest_first=_order(asked.get("order", "desc")) == "desc",
        after_us=_moment_us(after) if after else None,
        template=asked.get("template") or None,
        limit=limit_of(asked),
        token=_read_token(asked["nextToken"]) if asked.get("nextToken") else None,
    )


def limit_of(asked: Mapping[str, str], most: int = LIMIT_MOST) -> int:
    """Return how many a page may have.

    Raises:
        Refusal: The limit is invalid.
    """
    return number_of(asked, "limit", most, least=1, most=most)


def number_of(
    asked: Mapping[str, str], name: str, default: int, *, least: int = 0, most: int = 1 << 53
) -> int:
    """Return a whole number from the query part of a request.

    Raises:
        Refusal: The value is not a whole number, or is out of bounds.
    """
    text = asked.get(name)
    if not text:
        return default
    if len(text) > 20 or not text.isascii() or not text.isdigit() or not least <= int(text) <= most:
        raise Refusal(400, f"{name} must be a whole number from {least} to {most}")
    return int(text)


def metadata_of(text: str) -> dict[str, str]:
    """Parse labels from ``k=v&k2=v2``, where names and values are quoted once or twice.

    Raises:
        Refusal: The text has another form.
    """
    if len(text) > _TEXT_MOST or text.count("&") >= _LABELS_MOST:
        raise Refusal(400, "the metadata filter is too long")
    labels: dict[str, str] = {}
    for pair in filter(None, text.split("&")):
        name, separator, value = pair.partition("=")
        if not separator or not name:
            raise Refusal(400, "the metadata filter must look like key=value&key2=value2")
        labels[_unquoted(name)] = _unquoted(value)
    return labels


def page_of(infos: Iterable[SandboxInfo], query: Query, *, limit: int | None) -> Page:
    """Return a page of the matches, ``limit`` of them at most."""
    fitting = sorted(
        (info for info in infos if _fits(info, query)), key=_position, reverse=query.newest_first
    )
    running = sum(state_of(info) == "running" for info in fitting)
    if query.token is not None:
        fitting = [info for info in fitting if _is_past(_position(info), query.token, query.newest_first)]
    shown = fitting[:limit]
    token = _token(_position(shown[-1])) if len(fitting) > len(shown) else None
    return Page(infos=shown, token=token, running=running)


def _fits(info: SandboxInfo, query: Query) -> bool:
    if state_of(info) not in query.states:
        return False
    if query.after_us is not None and started_us(info) < query.after_us:
        return False
    if query.template is not None:
        attributes = read(info)
        if query.template not in (attributes.template, attributes.alias):
            return False
    return all(info.metadata.get(name) == value for name, value in query.metadata.items())


def _position(info: SandboxInfo) -> tuple[int, str]:
    return started_us(info), info.sandbox_id


def _is_past(position: tuple[int, str], token: tuple[int, str], newest_first: bool) -> bool:
    return position < token if newest_first else position > token


def _unquoted(text: str) -> str:
    return unquote_plus(unquote_plus(text))


def _states(text: str | None) -> frozenset[State]:
    if not text:
        return frozenset({"running", "paused"})
    states: set[State] = set()
    for word in text[:256].split(","):
        if word not in ("running", "paused"):
            raise Refusal(400, "state must be running, paused, or both with a comma between")
        states.add(word)  # type: ignore[arg-type]
    return frozenset(states)


def _order(text: str) -> Literal["asc", "desc"]:
    if text not in ("asc", "desc"):
        raise Refusal(400, "order must be asc or desc")
    return text  # type: ignore[return-value]


def _moment_us(text: str) -> int:
    try:
        # an unquoted plus sign has become a space
        moment = datetime.fromisoformat(text[:64].replace(" ", "+") if "T" in text[:64] else text[:64])
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        return round((moment - datetime.fromtimestamp(0, UTC)).total_seconds() * 1e6)
    except (ValueError, OverflowError):
        raise Refusal(400, "startedAfter must be a time like 2026-01-31T12:00:00Z") from None


def _token(position: tuple[int, str]) -> str:
    return base64.urlsafe_b64encode(f"{position[0]} {position[1]}".encode()).decode()


def _read_token(text: str) -> tuple[int, str]:
    try:
        moment, sandbox_id = base64.b64decode(text[:256], b"-_", validate=True).decode("ascii").split(" ")
        if not moment.isdigit() or not sandbox_id.isalnum():
            raise ValueError
        return int(moment), sandbox_id
    except (binascii.Error, UnicodeError, ValueError):
        raise Refusal(400, "nextToken must come from the previous page") from None
