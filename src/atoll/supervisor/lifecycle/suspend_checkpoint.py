"""Writes the checkpoint of a sandbox that falls asleep: first aside, then moved into place as a whole."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.host import sync_directory, sync_tree, to_the_end
from atoll.supervisor.integrity.checksums import CheckpointChecksums, note_boot
from atoll.supervisor.lifecycle.checkpoint_files import write_flows, write_names
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.running_machine import RunningMachine
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.storage.trash import Trash, erase, erase_stale

if TYPE_CHECKING:
    from atoll.snapshots import Layers

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class SuspendCheckpoints:
    """Writes and removes the checkpoints of sleeping sandboxes. The caller holds the sandbox's lock."""

    paths: Paths
    trash: Trash
    layers: Layers
    checksums: CheckpointChecksums

    async def begin(self, sandbox: Sandbox) -> Path:
        """Make the temporary directory, empty, and return it."""
        for left in self._stale(sandbox):
            await erase(left)
        aside = self.paths.new_checkpoint(sandbox.sandbox_id)
        aside.mkdir(mode=0o700)
        return aside

    async def undo(self, sandbox: Sandbox) -> None:
        """Remove the leftovers of an operation that failed midway."""
        for left in self._stale(sandbox):
            await erase_stale(left)

    def _stale(self, sandbox: Sandbox) -> list[Path]:
        """The directories to remove.

        A complete checkpoint stays if the engine keeps the disk: there is no other copy of it.
        """
        aside = self.paths.new_checkpoint(sandbox.sandbox_id)
        return [aside] if sandbox.row.engine_disk else [aside, self.paths.checkpoint(sandbox.sandbox_id)]

    async def write(self, sandbox: Sandbox, running: RunningMachine, *, durable: bool) -> None:
        """Write the memory of a frozen machine aside and move it into place.

        With ``durable``, flush it first.
        """
        aside = self.paths.new_checkpoint(sandbox.sandbox_id)
        place = self.paths.checkpoint(sandbox.sandbox_id)
        engine_disk = sandbox.row.engine_disk
        flows = await running.link.flows()
        await running.machine.checkpoint(aside, durable=durable)
        if not engine_disk:
            await self._settle(running.disk)
        # After the memory: the newest file here tells which changes of the disk are older than the memory.
        write_flows(aside, flows)
        write_names(aside, await running.link.guest.names())
        if durable:
            # A checkpoint that contains the engine's disk must have its checksum before the previous one
            # goes.
            early = self.checksums.write if engine_disk else None
            await asyncio.to_thread(_make_durable, aside, running.disk, early)
        else:
            note_boot(aside)
        # Do this no earlier: if the engine keeps the disk, a power cut would leave only the previous
        # checkpoint.
        self.trash.take(place)
        os.rename(aside, place)
        if durable:
            await asyncio.to_thread(sync_directory, place.parent)

    async def _settle(self, disk: Path) -> None:
        """Make the disk stop changing, also when it is unmounted.

        A wake that fails would take a change for the guest's own.
        """
        try:
            # This cannot be cancelled: the code that cancels thaws the guest or unmounts the disk next.
            await to_the_end(asyncio.to_thread(self.layers.settle, disk))
        except OSError as error:
            # The checkpoint can be used all the same, and unmounting tries this again.
            _log.warning("cannot settle the hard links in %s yet: %s", disk, error)


def _make_durable(aside: Path, disk: Path, write_checksums: Callable[[Path], None] | None) -> None:
    """Flush a checkpoint, and all that its guest has written, to the disk."""
    if write_checksums is not None:
        write_checksums(aside)
    sync_tree(disk)
