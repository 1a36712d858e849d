"""The life cycle, as a table: what may be done to a sandbox in which state."""

from __future__ import annotations

from typing import Literal

from atoll.errors import SandboxNotFoundError, StateError
from atoll.types import SandboxState

Action = Literal["pause", "suspend", "wake", "snapshot", "fork", "rollback", "dial", "limit", "kill"]

_ALLOWED: dict[Action, frozenset[SandboxState]] = {
    "pause": frozenset({"running", "paused"}),
    "limit": frozenset({"running", "paused", "suspended", "crashed"}),
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
