"""The memory of a sandbox that falls asleep: written aside at first, put in its place as a whole."""

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
    """The directories of one sandbox's memory, for whoever holds its lock.

    Args:
        parts: What sandboxes are made of.
        sandbox: Whose memory it is.
    """

    def __init__(self, parts: Parts, sandbox: Sandbox) -> None:
        self._parts = parts
        self._engine_disk = sandbox.row.engine_disk
        self.place = parts.paths.checkpoint(sandbox.sandbox_id)
        self.aside = self.place.with_name("checkpoint.new")

    async def begin(self) -> None:
        """Make the directory aside, empty."""
        for left in self._stale():
            await erase(left)
        self.aside.mkdir(mode=0o700)

    async def undo(self) -> None:
        """Remove what an operation that failed halfway may have left."""
        for left in self._stale():
            await erase_stale(left)

    def _stale(self) -> list[Path]:
        """A whole memory is all that an engine's disk has: that stays."""
        return [self.aside] if self._engine_disk else [self.aside, self.place]

    async def write(self, running: RunningMachine, *, durable: bool) -> None:
        """Write the memory of a frozen machine aside, and put it in its place: with ``durable`` on the disk."""
        flows = await running.link.flows()
        await running.machine.checkpoint(self.aside, durable=durable)
        await self._settle(running.disk)
        # After it: the newest file here says which changes of the disk are older than the memory.
        write_flows(self.aside, flows)
        if durable:
            # The disk that an engine keeps is in it: it must be known as whole before the one before goes.
            early = self._parts.running_machines.seals.seal if self._engine_disk else None
            await asyncio.to_thread(_make_durable, self.aside, running.disk, early)
        else:
            note_boot(self.aside)
        # Not before: where the engine keeps the disk, the one before is all that a power cut would leave.
        self._parts.trash.take(self.place)
        os.rename(self.aside, self.place)
        if durable:
            await asyncio.to_thread(sync_directory, self.place.parent)

    async def _settle(self, disk: Path) -> None:
        """Have the disk change no more, also when it is unmounted: a waking that fails would take that for the guest's
        doing.
        """
        if self._engine_disk:
            return
        try:
            # To its end: whoever cancels thaws the guest or unmounts the disk next.
            await to_the_end(asyncio.to_thread(self._parts.layers.settle, disk))
        except OSError as error:
            # The memory is good all the same, and unmounting tries it again.
            _log.warning("the hard links in %s are not settled yet: %s", disk, error)


def _make_durable(aside: Path, disk: Path, seal: Callable[[Path], None] | None) -> None:
    """Have a memory, and all that its guest has written, on the disk."""
    if seal is not None:
        seal(aside)
    sync_tree(disk)
