# Made by scripts/unasync.py from sdk/_async/listing.py: do not edit.
"""Lists the sandboxes of a home page by page, and reads the log of one."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import get_args

from atoll.errors import InvalidSpecError, SandboxNotFoundError
from atoll.protocol import LogsPage
from atoll.sdk._sync.api import Api, ref
from atoll.sdk._io_sync import sleep
from atoll.types import SandboxInfo, SandboxPage, SandboxState
from atoll.types.internal import check_choice, check_number, copied

_PAGE = 1000
_LOGS_POLL_S = 0.5


def listed(
    state: SandboxState | Sequence[SandboxState] | None,
    metadata: Mapping[str, str] | None,
    team: str | None,
    limit: int | None,
) -> Iterator[SandboxInfo]:
    """Iterate over the sandboxes that match, oldest first, ``limit`` at most."""
    if limit is not None:
        check_number("limit", limit, least=0, whole=True, hint="give how many at most, or None for all")
    if state is not None:
        _check_states(state)
        if not state:  # an empty list matches no sandbox, but the supervisor would read it as every state
            return
    labels = copied("metadata", metadata)
    left = limit
    cursor: str | None = None
    with contextlib.closing(Api()) as api:
        while left is None or left > 0:
            query = _query(state, labels, team, _PAGE if left is None else min(left, _PAGE), cursor)
            page = api.call("GET", f"/v1/sandboxes?{query}", SandboxPage)
            for info in page.sandboxes[:left]:
                yield info
            cursor = page.cursor
            if left is not None:
                left -= len(page.sandboxes)
            if cursor is None:
                return


def _check_states(state: SandboxState | Sequence[SandboxState]) -> None:
    if not isinstance(state, Sequence) or isinstance(state, (bytes, bytearray)):
        raise InvalidSpecError(f"state is {state!r}", hint="give a state, or a list of them")
    for one in (state,) if isinstance(state, str) else state:
        check_choice("state", one, get_args(SandboxState))


def _query(
    state: SandboxState | Sequence[SandboxState] | None,
    metadata: Mapping[str, str],
    team: str | None,
    limit: int,
    cursor: str | None,
) -> str:
    parts = [f"limit={limit}"]
    if state is not None:
        parts.append(f"state={ref(state if isinstance(state, str) else ','.join(state))}")
    parts += [f"metadata={ref(f'{key}={value}')}" for key, value in metadata.items()]
    if team is not None:
        parts.append(f"team={ref(team)}")
    if cursor is not None:
        parts.append(f"cursor={ref(cursor)}")
    return "&".join(parts)


def logged(api: Api, path: str, *, follow: bool) -> Iterator[str]:
    """Iterate over the log of the sandbox with the route ``path``.

    With ``follow``, continue until it is killed.
    """
    offset, end = 0, None
    while True:
        try:
            page = api.call("GET", f"{path}/logs?offset={offset}", LogsPage)
        except SandboxNotFoundError:
            if offset and follow:
                return
            raise
        offset = page.offset
        # The guest may write faster than the caller reads, so reading ends where the log ended at first.
        end = page.end if end is None else end
        if page.text:
            yield page.text
        if not follow and (offset >= end or not page.text):
            return
        if not page.text:
            sleep(_LOGS_POLL_S)
