"""Filters lists of sandboxes and divides them into pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Collection, Iterable, Mapping

from atoll.errors import InvalidSpecError
from atoll.types import SandboxInfo, SandboxPage

LIMIT_MAX = 1000


def page(
    infos: Iterable[SandboxInfo],
    *,
    states: Collection[str] = (),
    metadata: Mapping[str, str] | None = None,
    team: str | None = None,
    limit: int = 100,
    cursor: str | None = None,
) -> SandboxPage:
    """The sandboxes that match, the oldest first, ``limit`` of them after ``cursor``.

    The cursor names the last sandbox shown, so pages neither repeat nor omit a sandbox that exists
    throughout.

    Raises:
        InvalidSpecError: The limit or the cursor is invalid.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidSpecError(f"limit is {limit}", hint=f"give 1 to {LIMIT_MAX}")
    after = _decode(cursor) if cursor else (0.0, "")
    wanted = metadata or {}
    matching = sorted(
        (
            info
            for info in infos
            if _key(info) > after and team in (None, info.team) and _matches(info, states, wanted)
        ),
        key=_key,
    )
    shown = matching[:limit]
    return SandboxPage(sandboxes=shown, cursor=_encode(shown[-1]) if len(matching) > limit else None)


def _key(info: SandboxInfo) -> tuple[float, str]:
    return info.created_at, info.sandbox_id


def _matches(info: SandboxInfo, states: Collection[str], metadata: Mapping[str, str]) -> bool:
    if states and info.state not in states:
        return False
    return all(info.metadata.get(name) == value for name, value in metadata.items())


def _encode(info: SandboxInfo) -> str:
    return base64.urlsafe_b64encode(f"{info.created_at!r} {info.sandbox_id}".encode()).decode()


def _decode(cursor: str) -> tuple[float, str]:
    try:
        created_at, sandbox_id = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
        return float(created_at), sandbox_id
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidSpecError(
            f"{cursor!r} is not a cursor", hint="pass the cursor from the previous page"
        ) from None
