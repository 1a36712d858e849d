"""The key of a home's audit log."""

from __future__ import annotations

from atoll.errors import HostError
from atoll.host import Home
from atoll.secrets import KeyFile


def audit_key(home: Home, is_old: bool) -> bytes:
    """The key of a home's audit log. It is made for a new log only: with another one, all would seem changed.

    Raises:
        HostError: The key is missing, or cannot be used.
    """
    source = KeyFile(home.audit_key)
    if is_old and source.read() is None:
        raise HostError(
            f"the audit log has no key: {home.audit_key} is missing",
            hint=f"bring it back from a backup, or move {home.audit} away to begin another log",
        )
    return source.create()
