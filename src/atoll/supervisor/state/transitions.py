"""The life cycle, as a table: what may be done to a sandbox in which state."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from atoll.errors import AsleepError, SandboxNotFoundError, StateError, UnsupportedError
from atoll.types import SandboxState

if TYPE_CHECKING:
    from atoll.supervisor.state.rows import SandboxRow

Action = Literal[
    "pause", "suspend", "wake", "snapshot", "fork", "rollback", "dial", "limit", "set the lease of", "kill"
]

_ALLOWED: dict[Action, frozenset[SandboxState]] = {
    "pause": frozenset({"running", "paused"}),
    "limit": frozenset({"running", "paused", "suspended", "crashed"}),
    "set the lease of": frozenset({"running", "paused"}),
    "suspend": frozenset({"running", "paused", "suspended"}),
    "wake": frozenset({"running", "paused", "suspended", "crashed"}),
    "dial": frozenset({"running", "paused", "suspended", "crashed"}),
    "snapshot": frozenset({"running", "paused", "suspended"}),
    "fork": frozenset({"running", "paused", "suspended"}),
    "rollback": frozenset({"running", "paused", "suspended", "crashed"}),
    "kill": frozenset({"creating", "running", "paused", "suspended", "crashed"}),
}
_REMEDY = {
    "crashed": "wake it first: it starts again from its disk; or roll it back to a snapshot",
    "suspended": "wake it first",
    "creating": "wait until it is created",
}


def check_action(action: Action, state: SandboxState, sandbox_id: str) -> None:
    """Refuse what makes no sense in this state.

    Raises:
        SandboxNotFoundError: It has been killed.
        StateError: Not possible in this state; the hint says what to do first.
    """
    if state == "killed":
        raise SandboxNotFoundError(f"sandbox {sandbox_id} has been killed", sandbox_id=sandbox_id)
    if state not in _ALLOWED[action]:
        raise StateError(
            f"cannot {action} sandbox {sandbox_id}: it is {state}",
            hint=_REMEDY.get(state),
            sandbox_id=sandbox_id,
        )


def check_use(row: SandboxRow) -> None:
    """Refuse to wake a sandbox that only sleeps on purpose and is not woken by use.

    Raises:
        AsleepError: Says how to wake it.
    """
    if row.state in ("paused", "suspended") and not row.lifecycle.auto_resume:
        raise AsleepError(
            f"sandbox {row.sandbox_id} is {row.state}, and no use wakes it",
            hint="resume it first",
            sandbox_id=row.sandbox_id,
        )


def check_memory(action: Action, row: SandboxRow) -> None:
    """Refuse what needs the memory of a sandbox that has none.

    Raises:
        StateError: Only its disk was kept.
    """
    if not row.has_memory:
        raise StateError(
            f"cannot {action} sandbox {row.sandbox_id}: it sleeps without memory",
            hint="resume it first: it boots from its disk",
            sandbox_id=row.sandbox_id,
        )


def check_parts(sandbox_id: str | None = None, *, engine_disk: bool) -> None:
    """Refuse to part a disk from the memory that it is in.

    Raises:
        UnsupportedError: The disk is the engine's own.
    """
    if engine_disk:
        raise UnsupportedError(
            "the disk cannot be kept without the memory: it is the engine's own",
            hint="keep the memory; `atoll doctor` says how to get disks that stand alone",
            sandbox_id=sandbox_id,
        )
