"""Recovers crashed sandboxes at their next use, as ``on_crash`` says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Literal

from atoll.errors import SandboxCrashedError
from atoll.supervisor.state.registry import Registry, Sandbox
from atoll.types import Recovery

_How = Literal["disk", "snapshot", "checkpoint"]


class CrashRecovery:
    """Decides how crashed sandboxes go on. The caller holds the sandbox's lock.

    Args:
        registry: The sandboxes and snapshots.
        roll_back: Rolls a sandbox back in place, and changes columns of its row with it.
        boot: Starts a sandbox from its disk, and changes columns of its row with it.
    """

    def __init__(
        self,
        registry: Registry,
        roll_back: Callable[..., Awaitable[None]],
        boot: Callable[..., Awaitable[None]],
    ) -> None:
        self._registry = registry
        self._roll_back = roll_back
        self._boot = boot

    async def revive(self, sandbox: Sandbox, columns: dict[str, Any], *, by_hand: bool) -> None:
        """Make a crashed sandbox run again, with the lease in ``columns``.

        Args:
            columns: The columns to change in its row with it.
            by_hand: Whether a user asked for exactly that.

        Raises:
            SandboxCrashedError: It stays crashed until a user resumes it or rolls it back.
        """
        wanted = sandbox.row.on_crash
        if wanted == "stop" and not by_hand:
            raise SandboxCrashedError(
                f"sandbox {sandbox.sandbox_id} crashed ({sandbox.row.reason}) and waits for a decision",
                hint="`atoll resume` starts it from its disk, `atoll rollback` brings a snapshot back",
                sandbox_id=sandbox.sandbox_id,
            )
        newest = self._registry.newest_snapshot(sandbox.sandbox_id) if wanted == "rollback" else None
        if newest is not None:
            await self._roll_back(sandbox, newest.snapshot_id, self._told(sandbox, columns, "snapshot"))
        else:
            how: _How = "checkpoint" if sandbox.row.engine_disk else "disk"
            await self._boot(sandbox, self._told(sandbox, columns, how))

    def _told(self, sandbox: Sandbox, columns: dict[str, Any], how: _How) -> dict[str, Any]:
        """The columns and the message for users: memory is never lost silently."""
        recovery = Recovery(
            at=self._registry.now_s(), how=how, reason=sandbox.row.reason or "it is not known why"
        )
        return {**columns, "recovered": recovery}
