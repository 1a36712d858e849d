"""The key that a server makes for the user who starts it. It ends with the server in any case."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator

from atoll.errors import NameTakenError
from atoll.host import process_alive, start_ticks
from atoll.sdk import Keys, Teams
from atoll.types import KeyInfo, NewKey

# A process and its start time. The pair never returns before the next boot.
_NAME = re.compile(r"serve ([0-9]{1,10}) ([0-9]{1,20})")


@contextlib.contextmanager
def operator_key(team: str = "default") -> Iterator[NewKey]:
    """Give a key of the team that is valid while the context lasts. The team is made if it is missing."""
    _revoke_left()
    with contextlib.suppress(NameTakenError):
        Teams.create(team)
    made = Keys.create(team, f"serve {os.getpid()} {start_ticks(os.getpid())}")
    try:
        yield made
    finally:
        Keys.revoke(made.info.key_id)


def _revoke_left() -> None:
    """Revoke the keys of servers that died together with the process that would have revoked them."""
    for info in Keys.list():
        if _is_left(info):
            Keys.revoke(info.key_id)


def _is_left(info: KeyInfo) -> bool:
    found = _NAME.fullmatch(info.name)
    return found is not None and info.revoked_at is None and not process_alive(int(found[1]), int(found[2]))
