"""Writes the checkpoint of a sandbox that falls asleep: first aside, then moved into place as a whole."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from pathlib import Path

from atoll.host import sync_directory, sync_tree, to_the_end
from atoll.supervisor.lifecycle.checkpoint_files import write_flows
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.machines.running_machine import RunningMachine
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.storage.checksums import note_boot
from atoll.supervisor.storage.trash import erase, erase_stale

_log = logging.getLogger(__name__)


class Memory:
    """Writes and removes one sandbox's checkpoint. The caller holds the sandbox's lock.

    Args:
        parts: What sandboxes are made of.
        sandbox: The sandbox whose checkpoint it is.
    """

    def __init__(self, parts: Parts, sandbox: Sandbox) -> None:
        self._parts = parts
        self._engine_disk = sandbox.row.engine_disk
        self.place = parts.paths.checkpoint(sandbox.sandbox_id)
        self.aside = self.place.with_name("checkpoint.new")

    async def begin(self) -> None:
        """Make the temporary directory, empty."""
        for left in self._stale():
            await erase(left)
        self.aside.mkdir(mode=0o700)

    async def undo(self) -> None:
        """Remove what an operation that failed midway may have left."""
        for left in self._stale():
            await erase_stale(left)

    def _stale(self) -> list[Path]:
        """The directories to remove.

        A complete checkpoint stays if the engine keeps the disk: it is all there is.
        """
        return [self.aside] if self._engine_disk else [self.aside, self.place]

    async def write(self, running: RunningMachine, *, durable: bool) -> None:
        """Write the memory of a frozen machine aside and move it into place.

        With ``durable``, flush it first.
        """
        flows = await running.link.flows()
        await running.machine.checkpoint(self.aside, durable=durable)
        await self._settle(running.disk)
        # After the memory: the newest file here tells which changes of the disk are older than the memory.
        write_flows(self.aside, flows)
        if durable:
            # A checkpoint that contains the engine's disk must have its checksum before the previous one
            # goes.
            early = self._parts.running_machines.checksums.write if self._engine_disk else None
            await asyncio.to_thread(_make_durable, self.aside, running.disk, early)
        else:
            note_boot(self.aside)
        # Not earlier: if the engine keeps the disk, a power cut would leave only the previous checkpoint.
        self._parts.trash.take(self.place)
        os.rename(self.aside, self.place)
        if durable:
            await asyncio.to_thread(sync_directory, self.place.parent)

    async def _settle(self, disk: Path) -> None:
        """Make the disk stop changing, also when it is unmounted.

        A wake that fails would take a change for the guest's own.
        """
        if self._engine_disk:
            return
        try:
            # Not cancellable: the code that cancels thaws the guest or unmounts the disk next.
            await to_the_end(asyncio.to_thread(self._parts.layers.settle, disk))
        except OSError as error:
            # The checkpoint can be used all the same, and unmounting tries this again.
            _log.warning("the hard links in %s are not settled yet: %s", disk, error)


def _make_durable(aside: Path, disk: Path, write_checksums: Callable[[Path], None] | None) -> None:
    """Flush a checkpoint, and all that its guest has written, to the disk."""
    if write_checksums is not None:
        write_checksums(aside)
    sync_tree(disk)
