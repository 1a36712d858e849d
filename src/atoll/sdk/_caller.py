"""Who calls the supervisor with this process, as the lists of sandboxes and the audit log show it."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar
from functools import lru_cache

CALLS_FOR: ContextVar[str | None] = ContextVar("CALLS_FOR", default=None)
"""The client that this process calls for, if it serves others."""


def caller() -> str:
    """Return the caller: the client that this process serves, or itself by program, process id and user."""
    return CALLS_FOR.get() or _own_name(os.getpid())


@lru_cache(maxsize=1)
def _own_name(pid: int) -> str:
    return f"{_program()}, pid {pid}, user {_user()}"


def _program() -> str:
    name = os.path.basename(sys.argv[0]) if sys.argv else ""
    if name == "__main__.py":  # python -m PACKAGE
        name = os.path.basename(os.path.dirname(sys.argv[0]))
    return "python" if name in ("", "-", "-c") else name


def _user() -> str:
    if sys.platform == "win32":
        return os.environ.get("USERNAME", "?")
    import pwd

    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())
