"""Runs the programs of the home's user around the sleep of sandboxes, on the host."""

from __future__ import annotations

import asyncio
import logging
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import msgspec

from atoll.host import RunProgramError, run_program

if TYPE_CHECKING:
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.tasks import Tasks

# The same time as for hooks inside, because a suspend waits for these.
HOOKS_S = 10.0
# After hooks that took longer, no hook runs for this time: all sandboxes of a home may be about to suspend.
HUNG_S = 60.0
Event = Literal["before-suspend", "after-wake"]
_OUTPUT_BYTES = 4096
_log = logging.getLogger(__name__)


class _Told(msgspec.Struct, frozen=True, kw_only=True):
    """A hook's input."""

    event: Event
    why: str
    sandbox_id: str
    name: str | None
    team: str | None
    metadata: dict[str, str]


@dataclass(eq=False, repr=False)
class HomeHooks:
    """The hooks of a home: executable files in ``before-suspend.d`` and ``after-wake.d``.

    Args:
        directory: Where both are.
        bound_s: Seconds that all hooks of one event may take together.
    """

    directory: Path
    tasks: Tasks
    bound_s: float = HOOKS_S
    _woken: dict[str, asyncio.Task[None]] = field(default_factory=dict, init=False)
    _hung_until_s: float = field(default=0.0, init=False)

    def events(self) -> tuple[Event, ...]:
        """The events for which there are hooks."""
        return tuple(event for event in get_args(Event) if self._hooks(event))

    async def before_suspend(self, row: SandboxRow, why: str) -> None:
        """Run the hooks before a suspend. A hook that fails does not stop the suspend.

        Args:
            why: The cause of the sleep.
        """
        await self._after(self._woken.get(row.sandbox_id), "before-suspend", row, why)

    def after_wake(self, row: SandboxRow, why: str) -> None:
        """Start the hooks after a wake, without waiting for their end.

        Args:
            why: The sandbox's state before: ``suspended`` or ``crashed``.
        """
        if self._hooks("after-wake"):
            sandbox_id = row.sandbox_id
            work = self._after(self._woken.get(sandbox_id), "after-wake", row, why)
            self._woken[sandbox_id] = task = self.tasks.spawn(work)
            task.add_done_callback(lambda _: self._forget(sandbox_id, task))

    def _forget(self, sandbox_id: str, task: asyncio.Task[None]) -> None:
        if self._woken.get(sandbox_id) is task:
            del self._woken[sandbox_id]

    async def _after(
        self, earlier: asyncio.Task[None] | None, event: Event, row: SandboxRow, why: str
    ) -> None:
        if earlier is not None:
            await asyncio.wait([earlier])  # a listener hears of both in their order
        await self._run(event, row, why)

    async def _run(self, event: Event, row: SandboxRow, why: str) -> None:
        hooks, loop = self._hooks(event), asyncio.get_running_loop()
        if hooks and loop.time() < self._hung_until_s:
            _log.warning("no hooks %s for sandbox %s: one has just taken too long", event, row.sandbox_id)
            return
        told = _Told(
            event=event,
            why=why,
            sandbox_id=row.sandbox_id,
            name=row.name,
            team=row.team,
            metadata=row.metadata,
        )
        line = msgspec.json.encode(told) + b"\n"
        end_s = loop.time() + self.bound_s
        for path in hooks:
            left_s = end_s - loop.time()
            if left_s <= 0:
                _log.warning("the hook %s was left out for %s: no time was left", path, row.sandbox_id)
                continue
            await self._call(path, line, left_s, row.sandbox_id)
        if loop.time() >= end_s:
            self._hung_until_s = loop.time() + HUNG_S

    async def _call(self, path: Path, line: bytes, left_s: float, sandbox_id: str) -> None:
        try:
            done = await run_program([str(path)], stdin=line, timeout_s=left_s)
        except (RunProgramError, OSError) as error:
            _log.warning("a hook failed for sandbox %s: %s", sandbox_id, error)
            return
        if done.exit_code != 0:
            said = (done.stderr or done.stdout)[-_OUTPUT_BYTES:].decode(errors="replace")
            _log.warning(
                "the hook %s ended with %d for sandbox %s: %s", path, done.exit_code, sandbox_id, said
            )

    def _hooks(self, event: Event) -> list[Path]:
        """The executable files by name, without hidden ones."""
        try:
            found = sorted((self.directory / f"{event}.d").iterdir())
        except OSError:
            return []
        return [
            path
            for path in found
            if path.is_file() and os.access(path, os.X_OK) and not path.name.startswith(".")
        ]
