"""Recovers the sandboxes that an earlier supervisor left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from atoll.errors import AtollError, SandboxNotFoundError
from atoll.network import SHORTAGES
from atoll.supervisor.integrity.checksums import CHECKSUMS_FILE
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.unplug import Unplugs
from atoll.supervisor.machines.sandbox_plan import earlier_pages_directory
from atoll.supervisor.recovery.leftovers import LeftoverCollector
from atoll.supervisor.recovery.sleepers import undisturbed
from atoll.supervisor.state.rows import OperationRow, SandboxRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import SandboxState

if TYPE_CHECKING:
    from atoll.network import Links
    from atoll.snapshots import Layers, Stack
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.recovery.adoption import Adoption
    from atoll.supervisor.recovery.row_repair import RowRepair
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.trash import Trash

# With more at once, guests would lack the processor time to answer in time, and would pass for frozen.
_AT_ONCE = 32
_SHORTAGE_PAUSES_S = (0.1, 0.3, 1.0, 3.0)
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Reconcile:
    """Makes the sandboxes match their rows, or the rows match the host."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    layers: Layers
    links: Links
    running_machines: RunningMachines
    kills: Kills
    leftovers: LeftoverCollector
    trash: Trash
    adoption: Adoption
    repair: RowRepair
    unplugs: Unplugs
    _unsettled: contextlib.ExitStack = field(default_factory=contextlib.ExitStack, init=False)
    _turns: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_AT_ONCE), init=False)
    _undecided: dict[str, str] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Adopt the sandboxes that still run, mark the others, and remove leftovers.

        A failure with one sandbox does not stop the adoption of the others.
        """
        begun = {row.sandbox_id: row for row in await self.operations.cut_short()}
        everything = self.inventory.sandboxes()
        rows = [each.row for each in everything if each.sandbox_id not in begun]
        asleep = await asyncio.to_thread(undisturbed, rows, self.paths)
        left = [each for each in everything if each.sandbox_id not in asleep]
        # Do this for all at the same time: a guest that may be frozen has 10 s to answer, which would add up.
        async with asyncio.TaskGroup() as all_of_them:
            for each in left:
                all_of_them.create_task(self._one_of_all(each, begun.get(each.sandbox_id)))
        # Do this before unknown layers are removed: such a layer may be the whole disk of a sandbox.
        await self._settle_freezes(everything)
        for sandbox in left:
            await self._let_go(sandbox)
        self.links.sweep([link_id for one in everything if (link_id := one.row.link_id) is not None])
        for layer_id in await asyncio.to_thread(self.layers.remove_unfinished):
            _log.info("removed the unfinished layer %s", layer_id)
        for removed in await self.leftovers.collect(wait=False):
            _log.info("removed a leftover: %s %s", removed.kind, removed.name)
        for sandbox in left:
            await self._decide(sandbox, begun.get(sandbox.sandbox_id))
        await self._finish_kills()
        for sandbox in left:
            await self._tidy(sandbox)
        for operation in begun.values():
            await self.operations.close(operation, self._state(operation.sandbox_id))

    async def _let_go(self, sandbox: Sandbox) -> None:
        """Give up the link of a sleeping sandbox, unless the relay has kept its connections.

        On another link the guest learns at its wake that they have ended. A sandbox whose sleep was only a
        moment may still have clients.
        """
        row = sandbox.row
        if row.state != "suspended" or row.link_id is None or row.napping:
            return
        is_lost = sandbox.sandbox_id in self._undecided
        if is_lost or not await self.adoption.keep_link(sandbox, row.link_id):
            await self.repair.change(sandbox, link_id=None)

    async def _settle_freezes(self, sandboxes: Iterable[Sandbox]) -> None:
        # In one thread for all of them: handing over one by one would take most of the time.
        unsettled = await asyncio.to_thread(
            lambda: [
                (sandbox, found)
                for sandbox in sandboxes
                if sandbox.running is None and (found := self._settled(sandbox.row)) != sandbox.row.stack
            ]
        )
        for sandbox, found in unsettled:
            if isinstance(found, Exception):
                self._keep_unsettled(sandbox.row, found)
                continue
            _log.warning("sandbox %s uses a layer that its row did not name", sandbox.sandbox_id)
            sandbox.row = sandbox.row.but(stack=found)
            await self.repair.change(sandbox)

    def _settled(self, row: SandboxRow) -> Stack | Exception:
        """The stack of a sandbox without a machine, once an unknown freeze of its disk is undone."""
        disk = self.paths.disk(row.sandbox_id, row.disk)
        try:
            return self.layers.undo_unknown_freeze(disk, row.stack) if disk.is_dir() else row.stack
        except (AtollError, OSError) as error:
            return error

    def _keep_unsettled(self, row: SandboxRow, error: Exception) -> None:
        _log.warning("cannot undo the freeze of sandbox %s's disk yet: %s", row.sandbox_id, error)
        # The next mount tries this again. Until this supervisor ends, the layer is not erased.
        disk = self.paths.disk(row.sandbox_id, row.disk)
        if (layer_id := self.layers.noted_freeze(disk)) is not None:
            self._unsettled.enter_context(self.inventory.pins.during(layer_id))

    async def _finish_kills(self) -> None:
        """Give up the files of the sandboxes that were being killed.

        Collecting leftovers has ended their processes and mounts.
        """
        for sandbox in self.inventory.all():
            if sandbox.row.state != "killed":
                continue
            try:
                await self.kills.finish(sandbox)
            except (AtollError, OSError) as error:
                # Its row stays, so the next supervisor tries again.
                _log.warning(
                    "sandbox %s is killed, but its files cannot be erased: %s", sandbox.sandbox_id, error
                )

    async def _one_of_all(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        async with self._turns:
            try:
                await self._one_with_patience(sandbox, begun)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are adopted
                unforeseen = not isinstance(error, AtollError | OSError)
                _log.warning("cannot adopt sandbox %s: %s", sandbox.sandbox_id, error, exc_info=unforeseen)
                await self._keep_or_mark(sandbox, f"it could not be adopted: {error}")

    async def _keep_or_mark(self, sandbox: Sandbox, reason: str) -> None:
        """Mark a sandbox that cannot be adopted as crashed.

        If it sleeps, only note this: its checkpoint may be valid.
        """
        if sandbox.row.state == "suspended":
            self._undecided[sandbox.sandbox_id] = reason
        else:
            await self.repair.mark_crashed(sandbox, reason)

    async def _decide(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        """Let a sandbox that could not be adopted sleep on, if its memory and disk are of the same moment.

        Otherwise mark it as crashed. Any machine that may have run for it has been ended by now, as a leftover.
        """
        reason, row = self._undecided.get(sandbox.sandbox_id), sandbox.row
        if reason is None:
            return
        if row.has_memory and not await self.adoption.memory_counts(row, begun):
            await self.repair.mark_crashed(sandbox, reason)
        else:
            _log.warning("sandbox %s stays suspended", row.sandbox_id)

    async def _one_with_patience(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        for pause_s in _SHORTAGE_PAUSES_S:
            try:
                return await self._one(sandbox, begun)
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                # Adopting many at once briefly takes more resources than running them.
                _log.info("sandbox %s will be adopted later: %s", sandbox.sandbox_id, error)
            await asyncio.sleep(pause_s)
        return await self._one(sandbox, begun)

    async def _one(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        self.unplugs.heed(sandbox)
        await self._by_state(sandbox, begun)
        await self.unplugs.settle(sandbox)

    async def _by_state(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        row = sandbox.row
        self._finish_instant(row)
        if row.state in ("running", "paused"):
            await self.adoption.adopt(sandbox)
        elif row.state == "suspended" and not row.has_memory:
            return  # its operation never took effect, and goes with the leftovers
        elif row.state == "suspended" and not self.paths.checkpoint(row.sandbox_id).is_dir():
            await self.repair.mark_crashed(sandbox, "its memory was lost when the host went down")
        elif row.state == "suspended" and begun is not None and begun.kind == "wake":
            await self.adoption.finish_waking(sandbox, begun)
        elif row.state == "suspended" and begun is not None and begun.kind == "suspend":
            await self.running_machines.write_checksums(self.paths.checkpoint(row.sandbox_id), row.sandbox_id)

    def _finish_instant(self, row: SandboxRow) -> None:
        """Move a complete checkpoint into place if the previous one is already gone.

        It contains the disk that the engine keeps.
        """
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        aside = checkpoint.with_name("checkpoint.new")
        if row.engine_disk and not checkpoint.exists() and (aside / CHECKSUMS_FILE).is_file():
            os.rename(aside, checkpoint)

    def _state(self, sandbox_id: str) -> SandboxState | None:
        try:
            return self.inventory.sandbox(sandbox_id).row.state
        except SandboxNotFoundError:
            return None

    async def _tidy(self, sandbox: Sandbox) -> None:
        """Remove the leftovers of an interrupted operation from the sandbox's own directory."""
        row = sandbox.row
        directory = self.paths.sandbox(row.sandbox_id)
        disk = self.paths.disk(row.sandbox_id, row.disk)
        if not directory.is_dir():
            return
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        paths = self.paths
        needed = {disk, paths.console(row.sandbox_id), paths.row(row.sandbox_id)}
        needed |= {paths.decisions(row.sandbox_id), paths.limits(row.sandbox_id)}
        needed.add(paths.unplug_mark(row.sandbox_id))
        if (row.state == "suspended" and row.has_memory) or row.engine_disk:
            needed.add(checkpoint)
        if row.machine_id is not None:
            needed.add(earlier_pages_directory(disk, row.machine_id))
        for entry in set(directory.iterdir()) - needed:
            _log.info("removing %s, which an interrupted operation left behind", entry)
            self.trash.take(entry)
