"""Snapshots in the form of E2B's API: builds of templates that were taken of a sandbox."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Mapping

import msgspec

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.listing import limit_of
from atoll.server.e2b.wire import Snapshot
from atoll.types import TemplateInfo

_NAME = re.compile(r"[a-z0-9-_]{1,128}")
_TAG = re.compile(r"[a-z0-9-_.]{1,128}")
_DEFAULT_TAG = "default"
_Position = tuple[int, str, str]


class Name(msgspec.Struct, frozen=True):
    """A snapshot's name within its team."""

    name: str
    tag: str = _DEFAULT_TAG

    def __str__(self) -> str:
        return f"{self.name}:{self.tag}"


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """A query for snapshots; None means all.

    Args:
        sandbox_id: Only snapshots taken of this sandbox.
        name: Only snapshots of this name, and of this tag if it has one.
        limit: The most snapshots on a page.
        token: The position of the last snapshot on the page before; None begins the list.
    """

    sandbox_id: str | None = None
    name: str | None = None
    limit: int = 100
    token: _Position | None = None


def name_of(text: str, team: str) -> Name:
    """Parse a name as clients write it: ``NAME`` or ``NAME:TAG``.

    The team's own name and a slash may stand before it.

    Raises:
        Refusal: The name is invalid, or names another team.
    """
    space, slash, rest = text.strip().lower().rpartition("/")
    name, colon, tag = rest.partition(":")
    if slash and space != team:
        raise Refusal(400, f"Snapshots of this key are named {team}/NAME")
    if not _NAME.fullmatch(name):
        raise Refusal(400, "Invalid name: use lowercase letters, digits, dashes and underscores")
    if colon and not _TAG.fullmatch(tag):
        raise Refusal(400, f"Invalid tag: {tag[:64]}")
    return Name(name, tag if colon else _DEFAULT_TAG)


def told(template_id: str, name: str | None, tag: str, team: str) -> Snapshot:
    """Return the view of a snapshot for clients."""
    full = f"{team}/{name}:{tag}" if name is not None else None
    return Snapshot(snapshot_id=full or f"{template_id}:{tag}", names=[full] if full else [])


def query_of(asked: Mapping[str, str], team: str) -> Query:
    """Return the query in the query part of a request.

    Raises:
        Refusal: The query is invalid.
    """
    token, name = asked.get("nextToken"), asked.get("name")
    return Query(
        sandbox_id=asked.get("sandboxID") or None,
        name=_wanted_name(name, team) if name else None,
        limit=limit_of(asked),
        token=_read_token(token) if token else None,
    )


def page_of(templates: Iterable[TemplateInfo], query: Query, team: str) -> tuple[list[Snapshot], str | None]:
    """Return the matches of a page, newest first, and the token of the next page."""
    found = sorted(_found(templates, query), key=lambda one: one[0], reverse=True)
    if query.token is not None:
        found = [one for one in found if one[0] < query.token]
    shown = found[: query.limit]
    token = _token(shown[-1][0]) if len(found) > len(shown) else None
    return [told(template.template_id, template.name, tag, team) for (_, _, tag), template in shown], token


def _found(templates: Iterable[TemplateInfo], query: Query) -> Iterable[tuple[_Position, TemplateInfo]]:
    for template in templates:
        for tag in template.tags:
            build = template.build(tag)
            if build is None or build.sandbox_id is None or build.snapshot_id is None:
                continue
            if query.sandbox_id not in (None, build.sandbox_id):
                continue
            if query.name not in (None, template.name, f"{template.name}:{tag}"):
                continue
            yield (round(build.created_at * 1e6), template.template_id, tag), template


def _wanted_name(text: str, team: str) -> str:
    # an impossible name matches nothing
    space, slash, rest = text.strip().lower().rpartition("/")
    return rest if not slash or space == team else "/"


def _token(position: _Position) -> str:
    return base64.urlsafe_b64encode(" ".join(map(str, position)).encode()).decode()


def _read_token(text: str) -> _Position:
    try:
        moment, template_id, tag = (
            base64.b64decode(text[:512], b"-_", validate=True).decode("ascii").split(" ")
        )
        if not moment.isdigit():
            raise ValueError
        return int(moment), template_id, tag
    except (binascii.Error, UnicodeError, ValueError):
        raise Refusal(400, "nextToken must come from the previous page") from None
