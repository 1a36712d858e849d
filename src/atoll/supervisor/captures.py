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
    """What was captured: the layer on top of the sandbox's own stack, and how long the guest stood still."""

    layer_id: str
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
        """Write its memory into the new directory ``into`` and its disk into a layer of that id.

        A running one goes on; a paused or suspended one stays what it is and is not woken.

        Postcondition: on any exception neither directory nor layer is left.
        """
        into.mkdir(mode=0o700, parents=True)
        disk = self._parts.places.disk(sandbox.sandbox_id, sandbox.row.disk)
        copy = self._parts.layers.copy(disk, layer_id)
        try:
            if sandbox.row.state == "suspended":
                stopped_ms = await self._of_sleeping(sandbox, into, copy)
            else:
                berth = self._parts.berth_of(sandbox)
                work = self._of_running(berth, into, copy, paused=sandbox.row.state == "paused")
                stopped_ms = await berth.alive(work, sandbox.sandbox_id)
        except BaseException:
            await asyncio.shield(copy.abandon())
            await asyncio.shield(erase(into))
            raise
        return Capture(layer_id, (layer_id, *sandbox.row.stack), stopped_ms)

    async def _of_sleeping(self, sandbox: Sandbox, into: Path, copy: LayerCopy) -> float:
        checkpoint = self._parts.places.checkpoint(sandbox.sandbox_id)
        await asyncio.to_thread(link_files, checkpoint, into)
        await copy.first()
        await copy.last()
        return 0.0

    async def _of_running(self, berth: Berth, into: Path, copy: LayerCopy, *, paused: bool) -> float:
        await copy.first()
        began = time.perf_counter()
        if not paused:
            await berth.machine.pause()
        try:
            flows = await berth.link.flows()
            async with asyncio.TaskGroup() as both:
                both.create_task(berth.machine.checkpoint(into, leave_running=True))
                both.create_task(copy.last())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if not paused:
                with contextlib.suppress(Exception):  # it died: whoever waits for its end tells
                    await asyncio.shield(berth.machine.resume())
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
