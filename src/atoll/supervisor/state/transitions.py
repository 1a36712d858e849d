"""The life cycle as a table: which actions are allowed in which state of a sandbox."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from atoll.errors import AsleepError, SandboxNotFoundError, StateError, UnpluggedError, UnsupportedError
from atoll.types import SandboxState

if TYPE_CHECKING:
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.sandbox import Sandbox

Action = Literal[
    "pause",
    "suspend",
    "wake",
    "snapshot",
    "fork",
    "rollback",
    "promote",
    "dial",
    "limit",
    "set the lease of",
    "keep awake",
    "unplug",
    "kill",
]

_ALLOWED: dict[Action, frozenset[SandboxState]] = {
    "pause": frozenset({"running", "paused"}),
    "limit": frozenset({"running", "paused", "suspended", "crashed"}),
    "set the lease of": frozenset({"running", "paused"}),
    "keep awake": frozenset({"running", "paused"}),
    "suspend": frozenset({"running", "paused", "suspended"}),
    "wake": frozenset({"running", "paused", "suspended", "crashed"}),
    "dial": frozenset({"running", "paused", "suspended", "crashed"}),
    "snapshot": frozenset({"running", "paused", "suspended"}),
    "fork": frozenset({"running", "paused", "suspended"}),
    "rollback": frozenset({"running", "paused", "suspended", "crashed"}),
    "promote": frozenset({"running", "paused", "suspended"}),
    "unplug": frozenset({"running", "paused", "suspended", "crashed"}),
    "kill": frozenset({"creating", "running", "paused", "suspended", "crashed"}),
}
_REMEDY = {
    "crashed": "wake it first, which boots it from its disk, or roll it back to a snapshot",
    "suspended": "wake it first",
    "creating": "wait until it is created",
}


def check_action(action: Action, state: SandboxState, sandbox_id: str) -> None:
    """Refuse an action that this state does not allow.

    Raises:
        SandboxNotFoundError: The sandbox has been killed.
        StateError: The state does not allow the action; the hint names the first step.
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
    """Refuse to wake a sandbox that sleeps on purpose and that use does not wake.

    Raises:
        AsleepError: Says how to wake it.
    """
    # A sandbox that was paused for idleness hides that from its users.
    hidden = row.state == "paused" and row.sleep_cause == "idle"
    if row.state in ("paused", "suspended") and not row.lifecycle.auto_resume and not hidden:
        raise AsleepError(
            f"sandbox {row.called} is {row.state}, and only `resume` wakes it",
            hint="resume it first",
            sandbox_id=row.sandbox_id,
        )


def check_plugged(action: str, sandbox: Sandbox) -> None:
    """Refuse an action that an unplugged sandbox must not do.

    Raises:
        UnpluggedError: Says since when and why it is unplugged.
    """
    unplugged = sandbox.unplugged
    if unplugged is not None:
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(unplugged.at))
        raise UnpluggedError(
            f"cannot {action} sandbox {sandbox.row.called}: it is unplugged since {since} ({unplugged.reason})",
            hint="`atoll replug` gives it its network back",
            sandbox_id=sandbox.sandbox_id,
        )


def check_memory(action: Action, row: SandboxRow) -> None:
    """Refuse an action that needs the memory of a sandbox that has none.

    Raises:
        StateError: Only the sandbox's disk was kept.
    """
    if not row.has_memory:
        raise StateError(
            f"cannot {action} sandbox {row.called}: only its disk is kept",
            hint="resume it first: it boots from its disk",
            sandbox_id=row.sandbox_id,
        )


def check_parts(sandbox_id: str | None = None, *, engine_disk: bool) -> None:
    """Refuse to separate a disk from the memory that contains it.

    Raises:
        UnsupportedError: The engine keeps the disk.
    """
    if engine_disk:
        raise UnsupportedError(
            "the disk cannot be kept without the memory, because the engine keeps it",
            hint="keep the memory; `atoll doctor` says how to get disks that can be kept alone",
            sandbox_id=sandbox_id,
        )
