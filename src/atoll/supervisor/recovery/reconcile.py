"""Recovers the sandboxes that an earlier supervisor left."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import Any

from atoll.errors import AtollError, SandboxNotFoundError
from atoll.network import SHORTAGES
from atoll.supervisor.lifecycle.checkpoint_files import read_flows
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.lifecycle.sleep import PARTED_REASON
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.machines.identity import woken_init
from atoll.supervisor.machines.running_machine import RunningMachine
from atoll.supervisor.recovery.gc import LeftoverCollector
from atoll.supervisor.state.leases import length_after_use
from atoll.supervisor.state.registry import Sandbox, with_losses
from atoll.supervisor.state.rows import OperationRow, SandboxRow
from atoll.supervisor.storage.checksums import CHECKSUMS_FILE
from atoll.supervisor.storage.consistency import same_instant
from atoll.supervisor.storage.trash import erase_stale
from atoll.types import SandboxState

# With more at once, guests would not get enough processor time to answer before they are taken for frozen.
_AT_ONCE = 32
_SHORTAGE_PAUSES_S = (0.1, 0.3, 1.0, 3.0)
_log = logging.getLogger(__name__)


class Reconcile:
    """Makes the sandboxes match their rows, or the rows match the host.

    Args:
        parts: What sandboxes are made of.
        kills: Finishes kills that were interrupted.
        leftovers: Removes what remains when all is adopted.
    """

    def __init__(self, parts: Parts, kills: Kills, leftovers: LeftoverCollector) -> None:
        self._parts = parts
        self._kills = kills
        self._leftovers = leftovers
        self._unsettled = contextlib.ExitStack()
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._undecided: dict[str, str] = {}

    async def run(self) -> None:
        """Adopt what still runs, mark what does not, and remove what nothing owns.

        A sandbox that fails does not keep the others from being adopted.
        """
        begun = {row.sandbox_id: row for row in await self._parts.operations.cut_short()}
        left = self._parts.registry.sandboxes()
        # At the same time: a guest that may be frozen has 10 s to answer, and these would add up.
        async with asyncio.TaskGroup() as all_of_them:
            for each in left:
                all_of_them.create_task(self._one_of_all(each, begun.get(each.sandbox_id)))
        for sandbox in left:
            # Before layers that no row knows are removed: one of them may be all that a sandbox has.
            await self._settle_freeze(sandbox)
        self._parts.links.sweep([link_id for one in left if (link_id := one.row.link_id) is not None])
        for layer_id in await asyncio.to_thread(self._parts.layers.remove_unfinished):
            _log.info("removed the unfinished layer %s", layer_id)
        for removed in await self._leftovers.collect():
            _log.info("removed a leftover: %s %s", removed.kind, removed.name)
        for sandbox in left:
            await self._decide(sandbox, begun.get(sandbox.sandbox_id))
        await self._finish_kills()
        for sandbox in left:
            await self._tidy(sandbox)
        for operation in begun.values():
            await self._parts.operations.close(operation, self._state(operation.sandbox_id))

    async def _settle_freeze(self, sandbox: Sandbox) -> None:
        disk, stack = self._parts.paths.disk(sandbox.sandbox_id, sandbox.row.disk), sandbox.row.stack
        if sandbox.running is not None or not disk.is_dir():
            return
        layers = self._parts.layers
        try:
            found = await asyncio.to_thread(layers.undo_unknown_freeze, disk, stack)
        except (AtollError, OSError) as error:
            _log.warning("sandbox %s: its freeze is not undone yet: %s", sandbox.sandbox_id, error)
            # The next mount tries this again. Until this supervisor ends, the layer is not erased.
            if (layer_id := layers.noted_freeze(disk)) is not None:
                self._unsettled.enter_context(self._parts.registry.pins.during(layer_id))
            return
        if found != stack:
            _log.warning("sandbox %s stands on a layer that its row had lost", sandbox.sandbox_id)
            sandbox.row = sandbox.row.but(stack=found)
            await self._keep_row(sandbox)

    async def _keep_row(self, sandbox: Sandbox, **changes: Any) -> None:
        """Change a row, at least in memory: a full disk must not prevent a kill."""
        try:
            await self._parts.registry.change(sandbox, **changes)
        except AtollError as error:
            _log.warning("sandbox %s: what it is cannot be written down: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**changes)

    async def _finish_kills(self) -> None:
        """Erase the sandboxes that were being killed.

        Collecting leftovers has ended their processes and mounts.
        """
        for sandbox in self._parts.registry.all():
            if sandbox.row.state != "killed":
                continue
            try:
                await self._kills.finish(sandbox)
            except (AtollError, OSError) as error:
                # Its row stays, so the next supervisor tries again.
                _log.warning("sandbox %s is killed but not erased: %s", sandbox.sandbox_id, error)

    async def _one_of_all(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        async with self._turns:
            try:
                await self._one_with_patience(sandbox, begun)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others are adopted
                unforeseen = not isinstance(error, AtollError | OSError)
                _log.warning(
                    "sandbox %s cannot be adopted: %s", sandbox.sandbox_id, error, exc_info=unforeseen
                )
                await self._keep_or_mark(sandbox, f"it could not be adopted: {error}")

    async def _keep_or_mark(self, sandbox: Sandbox, reason: str) -> None:
        """Mark a sandbox that cannot be adopted as crashed.

        If it sleeps, only note this: its checkpoint may be valid.
        """
        if sandbox.row.state == "suspended":
            self._undecided[sandbox.sandbox_id] = reason
        else:
            await self._mark(sandbox, reason)

    async def _decide(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        """Let a sandbox that could not be adopted sleep on, if its memory and disk are of the same moment.

        Otherwise mark it as crashed. Any machine that may have run for it has been ended by now, as a leftover.
        """
        reason, row = self._undecided.get(sandbox.sandbox_id), sandbox.row
        if reason is None:
            return
        if row.has_memory and not await self._memory_counts(row, begun):
            await self._mark(sandbox, reason)
        else:
            _log.warning("sandbox %s sleeps on", row.sandbox_id)

    async def _memory_counts(self, row: SandboxRow, begun: OperationRow | None) -> bool:
        """Whether a sleeping sandbox, for which no machine runs any more, can continue from its memory."""
        checkpoint = self._parts.paths.checkpoint(row.sandbox_id)
        if not checkpoint.is_dir():
            return False
        if row.engine_disk or begun is None or begun.kind != "wake":
            return True
        disk = self._parts.paths.disk(row.sandbox_id, row.disk)
        return await asyncio.to_thread(same_instant, checkpoint, disk)

    async def _one_with_patience(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        for pause_s in _SHORTAGE_PAUSES_S:
            try:
                return await self._one(sandbox, begun)
            except OSError as error:
                if error.errno not in SHORTAGES:
                    raise
                # Adopting many at once briefly takes more resources than running them.
                _log.info("sandbox %s is adopted later: %s", sandbox.sandbox_id, error)
            await asyncio.sleep(pause_s)
        return await self._one(sandbox, begun)

    async def _one(self, sandbox: Sandbox, begun: OperationRow | None) -> None:
        row = sandbox.row
        self._finish_instant(row)
        if row.state in ("running", "paused"):
            await self._adopt(sandbox)
        elif row.state == "suspended" and not row.has_memory:
            return  # what was begun with it never counted, and is removed with the leftovers
        elif row.state == "suspended" and not self._parts.paths.checkpoint(row.sandbox_id).is_dir():
            await self._mark(sandbox, "its memory was lost when the host went down")
        elif row.state == "suspended" and begun is not None and begun.kind == "wake":
            await self._finish_waking(sandbox, begun)
        elif row.state == "suspended" and begun is not None and begun.kind == "suspend":
            await self._parts.running_machines.write_checksums(
                self._parts.paths.checkpoint(row.sandbox_id), row.sandbox_id
            )

    def _finish_instant(self, row: SandboxRow) -> None:
        """Move a complete checkpoint into place if the previous one is already gone.

        It contains the disk that the engine keeps.
        """
        checkpoint = self._parts.paths.checkpoint(row.sandbox_id)
        aside = checkpoint.with_name("checkpoint.new")
        if row.engine_disk and not checkpoint.exists() and (aside / CHECKSUMS_FILE).is_file():
            os.rename(aside, checkpoint)

    async def _finish_waking(self, sandbox: Sandbox, begun: OperationRow) -> None:
        """Finish a wake that was interrupted: its guest may have written to its disk already."""
        row = sandbox.row
        disk = self._parts.paths.disk(row.sandbox_id, row.disk)
        link = await self._parts.links.adopt(begun.link_id) if begun.link_id else None
        for machine_id, record in await self._parts.running_machines.strays(self._parts.plan(row)):
            found = row.but(machine_id=machine_id, machine=record, generation=row.generation + 1)
            if link is None:
                await self._parts.running_machines.end_lost(found, disk)
                continue
            running = await self._parts.running_machines.adopt(found, link, disk)
            if running is not None and await self._woken(sandbox, found, running):
                return
        if not await self._memory_counts(row, begun):
            await self._mark(sandbox, PARTED_REASON)

    async def _woken(self, sandbox: Sandbox, row: SandboxRow, running: RunningMachine) -> bool:
        """Take over a machine from an interrupted wake.

        Returns False if it cannot be used; it has then ended.
        """
        checkpoint = self._parts.paths.checkpoint(row.sandbox_id)
        running.link.set_policy(row.network)
        try:
            await running.alive(self._parts.agents.first(running.link, woken_init(row)), row.sandbox_id)
            await running.link.reset_connections(read_flows(checkpoint))
            # The interrupted wake may not have finished this check.
            await asyncio.to_thread(self._parts.running_machines.checksums.check, checkpoint, small=False)
            lease = self._parts.leases.woken(sandbox.row, length_after_use(row.lifecycle))
            await self._parts.take_up(
                sandbox, running, generation=row.generation, reason=None, durable=True, freeing=True, **lease
            )
        except Exception as error:  # noqa: BLE001 - whatever it is, its machine must not run on beside its memory
            _log.warning("the waking of sandbox %s is given up: %s", row.sandbox_id, error)
            await self._parts.running_machines.end(running)
            return False
        return True

    def _state(self, sandbox_id: str) -> SandboxState | None:
        try:
            return self._parts.registry.sandbox(sandbox_id).row.state
        except SandboxNotFoundError:
            return None

    async def _tidy(self, sandbox: Sandbox) -> None:
        """Remove what an interrupted operation left in the sandbox's own directory."""
        row = sandbox.row
        directory = self._parts.paths.sandbox(row.sandbox_id)
        disk = self._parts.paths.disk(row.sandbox_id, row.disk)
        if not directory.is_dir():
            return
        checkpoint = self._parts.paths.checkpoint(row.sandbox_id)
        paths = self._parts.paths
        needed = {disk, paths.console(row.sandbox_id), paths.row(row.sandbox_id)}
        if (row.state == "suspended" and row.has_memory) or row.engine_disk:
            needed.add(checkpoint)
        for entry in set(directory.iterdir()) - needed:
            _log.info("removing %s, which an operation left that was cut short", entry)
            await erase_stale(entry)

    async def _adopt(self, sandbox: Sandbox) -> None:
        row = sandbox.row
        link = await self._parts.links.adopt(row.link_id) if row.link_id else None
        if link is None:
            await self._parts.running_machines.end_lost(row, self._parts.paths.disk(row.sandbox_id, row.disk))
            await self._mark(sandbox, "its network was lost: the host or its holder process ended")
            return
        link.set_policy(row.network)
        disk = self._parts.paths.disk(row.sandbox_id, row.disk)
        running = await self._parts.running_machines.adopt(row, link, disk)
        if running is None:
            await link.aclose()
            await self._mark(sandbox, "its processes ended while no supervisor ran")
            return
        try:
            runs = row.state == "paused" or await thaw_or_end(running)
        except BaseException:
            self._parts.running_machines.let_go(running)
            raise
        if not runs:
            await self._parts.running_machines.end(running)
            await link.aclose()
            await self._mark(sandbox, "it could not be thawed after its supervisor had ended")
            return
        self._parts.attach(sandbox, running)
        if row.state == "paused":
            sandbox.memory_untold = True  # its limits may have been changed before
            self._parts.watch_paused(sandbox, running)
        _log.info("adopted sandbox %s", row.sandbox_id)

    async def _mark(self, sandbox: Sandbox, reason: str) -> None:
        reason = with_losses(sandbox.row, reason)
        _log.warning("sandbox %s crashed: %s", sandbox.sandbox_id, reason)
        await self._keep_row(
            sandbox, state="crashed", reason=reason, machine=None, machine_id=None, link_id=None
        )
