"""Memory and disk of a sandbox at one instant, without ending it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.network import Flow
from atoll.supervisor.erasing import erase
from atoll.supervisor.parts import Parts
from atoll.supervisor.table import Sandbox

if TYPE_CHECKING:
    from atoll.snapshots import LayerCopy
    from atoll.supervisor.berths import Berth

FLOWS = "flows.json"


class Capture(msgspec.Struct, frozen=True):
    """What was captured: the layer on top of the sandbox's own stack, and how long the guest stood still.

    There is no layer where the engine keeps the disk: it is captured with the memory.
    """

    layer_id: str | None
    stack: tuple[str, ...]
    stopped_ms: float


class Captures:
    """Captures sandboxes; the caller holds the sandbox's lock.

    Args:
        parts: What sandboxes are made of.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    async def capture(self, sandbox: Sandbox, into: Path, layer_id: str) -> Capture:
        """Write its memory into the new directory ``into`` and its disk into a layer: of that id where it is copied.

        A running one goes on; a paused or suspended one stays what it is and is not woken.

        Postcondition: on any exception neither directory nor layer is left.
        """
        into.mkdir(mode=0o700, parents=True)
        disk = self._parts.places.disk(sandbox.sandbox_id, sandbox.row.disk)
        try:
            if sandbox.row.state == "suspended":
                checkpoint = self._parts.places.checkpoint(sandbox.sandbox_id)
                await asyncio.to_thread(link_files, checkpoint, into)
                if sandbox.row.engine_disk:
                    return Capture(None, (), 0.0)
                if self._parts.complete:
                    return await self._frozen(sandbox, disk)
            if sandbox.row.engine_disk:
                return Capture(None, (), await self._of_machine(sandbox, into))
            return await self._copied(sandbox, into, disk, layer_id)
        except BaseException:
            await asyncio.shield(erase(into))
            raise

    async def _frozen(self, sandbox: Sandbox, disk: Path) -> Capture:
        """Make the writable layer of a sleeping sandbox the layer, and give the sandbox a new one: no copy."""
        layers, old_stack = self._parts.layers, sandbox.row.stack
        async with self._parts.layers_lock:
            try:
                layer_id = await asyncio.to_thread(layers.freeze, disk)
                stack = (layer_id, *old_stack)
                await self._parts.table.change(sandbox, durable=True, stack=stack)
            except BaseException:
                await asyncio.shield(asyncio.to_thread(layers.undo_unknown_freeze, disk, old_stack))
                raise
            await asyncio.to_thread(layers.branch, disk, stack)
        return Capture(layer_id, stack, 0.0)

    async def _of_machine(self, sandbox: Sandbox, into: Path) -> float:
        berth = self._parts.berth_of(sandbox)
        work = self._of_running(berth, into, None, paused=sandbox.row.state == "paused")
        return await berth.alive(work, sandbox.sandbox_id)

    async def _copied(self, sandbox: Sandbox, into: Path, disk: Path, layer_id: str) -> Capture:
        copy = self._parts.layers.copy(disk, layer_id)
        try:
            if sandbox.row.state == "suspended":
                await copy.first()
                await copy.last()
                stopped_ms = 0.0
            else:
                berth = self._parts.berth_of(sandbox)
                work = self._of_running(berth, into, copy, paused=sandbox.row.state == "paused")
                stopped_ms = await berth.alive(work, sandbox.sandbox_id)
        except BaseException:
            await asyncio.shield(copy.abandon())
            raise
        return Capture(layer_id, (layer_id, *sandbox.row.stack), stopped_ms)

    async def _of_running(self, berth: Berth, into: Path, copy: LayerCopy | None, *, paused: bool) -> float:
        if copy is not None:
            await copy.first()
        began = time.perf_counter()
        if not paused:
            await berth.freeze()
        try:
            flows = await berth.link.flows()
            async with asyncio.TaskGroup() as both:
                both.create_task(berth.machine.checkpoint(into, leave_running=True))
                if copy is not None:
                    both.create_task(copy.last())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if not paused:
                with contextlib.suppress(Exception):  # it died: whoever waits for its end tells
                    await asyncio.shield(berth.thaw())
        stopped_ms = (time.perf_counter() - began) * 1000
        write_flows(into, flows)
        return stopped_ms


def link_files(source: Path, target: Path) -> None:
    """Make the files of a checkpoint, which never change, appear in another directory too."""
    for entry in source.iterdir():
        os.link(entry, target / entry.name)


def write_flows(checkpoint: Path, flows: Sequence[Flow]) -> None:
    """Keep with a checkpoint which connections its guest believes to have."""
    (checkpoint / FLOWS).write_bytes(msgspec.json.encode(list(flows)))


def read_flows(checkpoint: Path) -> list[Flow]:
    """What ``write_flows`` kept; nothing when there is nothing."""
    try:
        return msgspec.json.decode((checkpoint / FLOWS).read_bytes(), type=list[Flow])
    except (OSError, msgspec.DecodeError):
        return []
