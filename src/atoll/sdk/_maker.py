"""Who makes sandboxes with this process, as lists of them show it."""

from __future__ import annotations

import os
import sys
from contextvars import ContextVar

MADE_FOR: ContextVar[str | None] = ContextVar("MADE_FOR", default=None)
"""Whom this process makes sandboxes for, if it does so for others."""


def maker() -> str:
    """Return the one for whom this process makes sandboxes: itself, by program, process id and user."""
    return MADE_FOR.get() or f"{_program()}, pid {os.getpid()}, user {_user()}"


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
