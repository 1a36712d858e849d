"""Shortens long chains of layers while everything keeps running."""

from __future__ import annotations

import asyncio
import logging

from atoll.errors import AtollError
from atoll.snapshots import Layers, Stack, run_to_merge
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.layer_gc import LayerGC

_log = logging.getLogger(__name__)


class Compaction:
    """Merges layers of long stacks in the background.

    Snapshots, and sandboxes without a machine, then use the merged layer. A running sandbox keeps its mount
    and changes over when it is mounted the next time. Layers that nothing uses any more are removed. A crash
    midway leaves an unused layer, or some stacks shorter than others.

    Args:
        inventory: The sandboxes and snapshots that use layers.
        paths: Where disks are.
        layers: The layers.
        layer_gc: Erases unused layers.
        tasks: Owner of the merging.
    """

    def __init__(
        self, inventory: Inventory, paths: Paths, layers: Layers, layer_gc: LayerGC, tasks: Tasks
    ) -> None:
        self._inventory = inventory
        self._paths = paths
        self._layers = layers
        self._layer_gc = layer_gc
        self._tasks = tasks
        self._sizes: dict[str, int] = {}
        self._busy = False

    def look(self) -> None:
        """Start to merge if some stack has become too long. Returns at once."""
        longer = any(
            self._inventory.merges.shorter(row.stack) != row.stack for row in self._inventory.snapshots()
        )
        if not self._busy and (longer or self._long_stack() is not None):
            self._busy = True
            self._tasks.spawn(self._work())

    async def shorten(self, sandbox: Sandbox) -> None:
        """Move a sandbox to merged layers if there are any. Its disk is not mounted, and its lock is held."""
        stack = self._inventory.merges.shorter(sandbox.row.stack)
        disk = self._paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        if stack == sandbox.row.stack or not await asyncio.to_thread(self._layers.settled, disk):
            return
        # A freeze that the row records need not be undone, and cannot be once its layer is merged.
        await self._inventory.change(sandbox, durable=True)
        await asyncio.to_thread(self._layers.forget_freeze, disk)
        await self._inventory.change(sandbox, durable=True, stack=stack)

    async def _work(self) -> None:
        try:
            await self._use()
            while (stack := self._long_stack()) is not None:
                if not await self._merge_of(stack):
                    return
                await self._use()
                await self._layer_gc.collect()
        finally:
            self._busy = False

    def _long_stack(self) -> Stack | None:
        """A stack that is too long even when all merges so far are used."""
        for row in self._rows():
            stack = self._inventory.merges.shorter(row.stack)
            if run_to_merge(stack, dict.fromkeys(stack, 0)) is not None:
                return stack
        return None

    def _rows(self) -> list[SandboxRow | SnapshotRow]:
        return [*(one.row for one in self._inventory.sandboxes()), *self._inventory.snapshots()]

    async def _merge_of(self, stack: Stack) -> bool:
        merged = new_id()
        with self._inventory.pins.during(merged, *stack):
            try:
                await asyncio.to_thread(self._measure, stack)
                run = run_to_merge(stack, self._sizes)
                if run is None:
                    return True
                await asyncio.to_thread(self._layers.merge, run, merged)
            except (AtollError, OSError) as error:
                _log.warning("cannot merge layers now: %s", error)
                return False
            self._inventory.merges.add(run, merged)
        return True

    def _measure(self, stack: Stack) -> None:
        for layer in stack:
            if layer not in self._sizes:
                self._sizes[layer] = self._layers.size_bytes(layer)

    async def _use(self) -> None:
        """Move every sandbox and snapshot that can change over to merged layers."""
        stacks = {layer for row in self._rows() for layer in row.stack}
        with self._inventory.pins.during(*stacks):
            await self._inventory.restack(self._inventory.merges.shorter)
            for sandbox in self._inventory.sandboxes():
                if (
                    sandbox.running is None
                    and self._inventory.merges.shorter(sandbox.row.stack) != sandbox.row.stack
                ):
                    async with sandbox.lock:
                        if sandbox.running is None and sandbox.row.state in ("suspended", "crashed"):
                            await self.shorten(sandbox)
