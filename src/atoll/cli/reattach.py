"""Helps a user return to a program after its sandbox went away under this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from atoll.errors import AgentError, AtollError, DeadlineError, StateError, UnresponsiveError

if TYPE_CHECKING:
    from atoll import Sandbox


@contextmanager
def reattach_hint(sandbox: Sandbox, program: int | str) -> Iterator[None]:
    """To an error that leaves a program running, add the command that attaches to it again."""
    try:
        yield
    except (StateError, DeadlineError, AgentError) as error:
        hint = None if isinstance(error, UnresponsiveError) else _hint(sandbox, program)
        if hint is not None:
            error.remedy = hint
        raise


def _hint(sandbox: Sandbox, program: int | str) -> str | None:
    command = f"atoll attach {sandbox.name or sandbox.id} {program}"
    try:
        info = sandbox.info()
    except AtollError:
        return None
    if info.state == "running":
        return f"if the program still runs, `{command}` attaches to it again"
    if info.state not in ("paused", "suspended") or not info.has_memory:
        return None
    if not info.lifecycle.auto_resume:
        woken = f"atoll resume {sandbox.name or sandbox.id}"
        return f"its programs sleep with it: run `{woken}`, then `{command}` to attach again"
    return f"its programs sleep with it: `{command}` wakes it and attaches again"
