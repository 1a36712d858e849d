"""Sandboxes whose processes died."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.supervisor.state.registry import Sandbox, Table, crash_reason, with_losses
from atoll.supervisor.state.tasks import Works

if TYPE_CHECKING:
    from atoll.supervisor.machines.running_machine import Berth, Berths

_log = logging.getLogger(__name__)


class Crashes:
    """Notices a machine's unexpected end and makes its sandbox ``crashed``.

    Args:
        table: The sandboxes.
        berths: Where the machines are.
        works: Owner of the watching.
    """

    def __init__(self, table: Table, berths: Berths, works: Works) -> None:
        self._table = table
        self._berths = berths
        self._works = works

    def follow(self, sandbox: Sandbox, berth: Berth) -> None:
        """Watch a berth that has just become the sandbox's."""
        self._works.watch(self._following(sandbox, berth))

    async def _following(self, sandbox: Sandbox, berth: Berth) -> None:
        await berth.gone.wait()
        if not berth.leaving:
            # At once, before anything is waited for: clients hang on these.
            berth.hang_up()
        async with sandbox.lock:
            # Who kills it comes next.
            if sandbox.berth is berth and not berth.leaving and not berth.killed:
                await self.crashed_locked(sandbox, berth, crash_reason(sandbox.row, berth))

    async def crashed_locked(self, sandbox: Sandbox, berth: Berth, reason: str) -> None:
        """Free what is left of it and mark it; the caller holds the sandbox's lock."""
        reason = with_losses(sandbox.row, reason)
        if not berth.killed:
            _log.warning("sandbox %s crashed: %s", sandbox.sandbox_id, reason)
        # Whoever asks while the rest is being freed is told already.
        sandbox.row = sandbox.row.but(state="crashed", reason=reason)
        sandbox.berth = None
        await self._berths.end(berth)
        try:
            await berth.link.aclose()
            await self._table.change(
                sandbox, state="crashed", reason=reason, machine=None, machine_id=None, link_id=None
            )
        except (AtollError, OSError) as error:
            # It is crashed all the same: a next supervisor sees that nothing runs.
            _log.warning("the crash of sandbox %s is not written down: %s", sandbox.sandbox_id, error)
