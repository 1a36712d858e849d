"""What a new supervisor does with what an earlier one left."""

from __future__ import annotations

import asyncio
import logging

from atoll.errors import AtollError
from atoll.supervisor.berths import Berth
from atoll.supervisor.erasing import erase
from atoll.supervisor.kills import Kills
from atoll.supervisor.leftovers import Leftovers
from atoll.supervisor.parts import Parts
from atoll.supervisor.table import Sandbox

# A guest that runs answers sooner, however busy it is.
_ANSWER_S = 10.0
_log = logging.getLogger(__name__)


class Reconcile:
    """Makes the sandboxes what their rows say, or the rows what the host says.

    Args:
        parts: What sandboxes are made of.
        kills: Finishes kills that were begun.
        leftovers: What remains when all is adopted.
    """

    def __init__(self, parts: Parts, kills: Kills, leftovers: Leftovers) -> None:
        self._parts = parts
        self._kills = kills
        self._leftovers = leftovers

    async def run(self) -> None:
        """Adopt what still runs, mark what does not, remove what nobody owns.

        One sandbox that makes trouble does not keep the others from being adopted.
        """
        for sandbox in self._parts.table.sandboxes():
            try:
                await self._one(sandbox)
            except (AtollError, OSError) as error:
                _log.warning("sandbox %s cannot be adopted: %s", sandbox.sandbox_id, error)
                await self._mark(sandbox, f"it could not be adopted: {error}")
        left = self._parts.table.sandboxes()
        for sandbox in left:
            # Before layers are removed that no row knows: one of them may be all that a sandbox has.
            disk = self._parts.places.disk(sandbox.sandbox_id, sandbox.row.disk)
            if sandbox.berth is None and disk.is_dir():
                await asyncio.to_thread(self._parts.layers.undo_unknown_freeze, disk, sandbox.row.stack)
        self._parts.links.sweep([link_id for one in left if (link_id := one.row.link_id) is not None])
        for layer_id in await asyncio.to_thread(self._parts.layers.remove_unfinished):
            _log.info("removed the unfinished layer %s", layer_id)
        for removed in await self._leftovers.collect():
            _log.info("removed a leftover: %s %s", removed.kind, removed.name)
        await self._finish_kills()
        for sandbox in left:
            await self._tidy(sandbox)

    async def _finish_kills(self) -> None:
        """Erase what was being killed; the leftovers' collection has ended its processes and mounts."""
        for sandbox in self._parts.table.all():
            if sandbox.row.state != "killed":
                continue
            try:
                await self._kills.finish(sandbox)
            except (AtollError, OSError) as error:
                # Its row stays, so the next supervisor tries again.
                _log.warning("sandbox %s is killed but not erased: %s", sandbox.sandbox_id, error)

    async def _one(self, sandbox: Sandbox) -> None:
        row = sandbox.row
        if row.state in ("running", "paused"):
            await self._adopt(sandbox)
        elif row.state == "suspended" and not self._parts.places.checkpoint(row.sandbox_id).is_dir():
            await self._mark(sandbox, "its memory was lost when the host went down")

    async def _tidy(self, sandbox: Sandbox) -> None:
        """Remove what an operation that was cut short left in the sandbox's own directory."""
        row = sandbox.row
        directory = self._parts.places.sandbox(row.sandbox_id)
        disk = self._parts.places.disk(row.sandbox_id, row.disk)
        if not directory.is_dir():
            return
        checkpoint = self._parts.places.checkpoint(row.sandbox_id)
        needed = {disk, self._parts.places.console(row.sandbox_id)}
        if row.state == "suspended":
            needed.add(checkpoint)
        for entry in set(directory.iterdir()) - needed:
            _log.info("removing %s, which an operation left that was cut short", entry)
            await erase(entry)

    async def _adopt(self, sandbox: Sandbox) -> None:
        row = sandbox.row
        link = await self._parts.links.adopt(row.link_id) if row.link_id else None
        if link is None:
            await self._mark(sandbox, "its network was lost: the host or its holder process ended")
            return
        link.set_policy(row.network)
        disk = self._parts.places.disk(row.sandbox_id, row.disk)
        berth = await self._parts.berths.adopt(row, link, disk)
        if berth is None:
            await link.aclose()
            await self._mark(sandbox, "its processes ended while no supervisor ran")
            return
        if row.state == "running":
            try:
                await self._thaw_if_frozen(berth)
            except BaseException:
                # It counts as crashed now, and nothing may write to its disk beside what is started next.
                await asyncio.shield(self._parts.berths.end(berth))
                await asyncio.shield(link.aclose())
                raise
        self._parts.attach(sandbox, berth)
        if row.state == "paused":
            self._parts.watch_paused(sandbox, berth)
        _log.info("adopted sandbox %s", row.sandbox_id)

    async def _thaw_if_frozen(self, berth: Berth) -> None:
        """Have a machine run that was frozen for a moment when the supervisor died."""
        if not berth.may_be_frozen:
            return
        try:
            async with asyncio.timeout(_ANSWER_S):
                await self._parts.agents.ready(berth.link)
            berth.is_not_frozen()
        except TimeoutError:
            await berth.thaw()

    async def _mark(self, sandbox: Sandbox, reason: str) -> None:
        _log.warning("sandbox %s crashed: %s", sandbox.sandbox_id, reason)
        await self._parts.table.change(
            sandbox, state="crashed", reason=reason, machine=None, machine_id=None, link_id=None
        )
