"""Filters lists of sandboxes and divides them into pages."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping

from atoll.errors import InvalidSpecError
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import SandboxInfo, SandboxPage

LIMIT_MAX = 1000


def page(
    sandboxes: Iterable[Sandbox],
    told: Callable[[Sandbox], SandboxInfo],
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

    Args:
        told: Returns the information to show of a sandbox.

    Raises:
        InvalidSpecError: The limit or the cursor is invalid.
    """
    if not 1 <= limit <= LIMIT_MAX:
        raise InvalidSpecError(f"limit is {limit}", hint=f"give 1 to {LIMIT_MAX}")
    after = _decode(cursor) if cursor else (0.0, "")
    wanted = metadata or {}
    matching = []
    for sandbox in sandboxes:
        row = sandbox.row
        key = (row.created_at, row.sandbox_id)
        if key > after and team in (None, row.team) and _matches(sandbox, states, wanted):
            matching.append((*key, sandbox))
    matching.sort()
    shown = [sandbox for _, _, sandbox in matching[:limit]]
    infos = [told(sandbox) for sandbox in shown]
    return SandboxPage(sandboxes=infos, cursor=_encode(shown[-1].row) if len(matching) > limit else None)


def _matches(sandbox: Sandbox, states: Collection[str], metadata: Mapping[str, str]) -> bool:
    if states and sandbox.state not in states:
        return False
    return all(sandbox.row.metadata.get(name) == value for name, value in metadata.items())


def _encode(row: SandboxRow) -> str:
    return base64.urlsafe_b64encode(f"{row.created_at!r} {row.sandbox_id}".encode()).decode()


def _decode(cursor: str) -> tuple[float, str]:
    try:
        created_at, sandbox_id = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
        return float(created_at), sandbox_id
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidSpecError(
            f"{cursor!r} is not a cursor", hint="pass the cursor from the previous page"
        ) from None
