"""Captures a sandbox's memory and disk at one moment without ending the sandbox."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.engines import LatePages, memory_bytes
from atoll.errors import AtollError, NoSpaceError, SandboxCrashedError, SandboxNotFoundError
from atoll.host import sync_tree, to_the_end
from atoll.supervisor.integrity.checksums import note_boot
from atoll.supervisor.lifecycle.checkpoint_files import link_files, write_flows, write_names
from atoll.supervisor.machines.checkpoint_memory import CheckpointMemory, OutgrownError
from atoll.supervisor.machines.freeze import thaw_or_end
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.storage.trash import erase

if TYPE_CHECKING:
    from atoll.snapshots import LayerCopy, Layers
    from atoll.supervisor.lifecycle.naps import Naps
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.storage.trash import Trash

# Copying this little takes a millisecond or two, so it is done while the guest is frozen for its memory.
_AT_ONCE_BYTES = 1 << 20
_log = logging.getLogger(__name__)


class CapturedState(msgspec.Struct, frozen=True):
    """The result of a capture: memory, the top layer, and how long the guest was frozen.

    The layer lies above the sandbox's own stack.

    If the engine keeps the disk, there is no layer: the disk is captured with the memory. If
    ``being_written`` is set, the sandbox goes on before all of its memory is written, see
    ``Checkpoints.written``.
    """

    checkpoint: Path
    layer_id: str | None
    stack: tuple[str, ...]
    stopped_ms: float
    being_written: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class Checkpoints:
    """Captures sandboxes. The caller holds the sandbox's lock.

    Args:
        complete: Whether a layer can be stacked below another one, so that freezing saves a copy.
    """

    inventory: Inventory
    paths: Paths
    layers: Layers
    layer_gc: LayerGC
    running_machines: RunningMachines
    agents: Agents
    trash: Trash
    complete: bool
    naps: Naps
    _memory: CheckpointMemory = field(init=False)

    def __post_init__(self) -> None:
        self._memory = CheckpointMemory(self.paths.forks, self.paths.forks_pages)

    async def capture(
        self,
        sandbox: Sandbox,
        into: Path,
        layer_id: str,
        *,
        copy_most_bytes: int,
        flushed: bool,
        in_memory: bool = True,
    ) -> CapturedState:
        """Write the memory into the new directory ``into`` and the disk into a layer, ``layer_id`` if copied.

        A running sandbox goes on. A paused or suspended sandbox keeps its state and is not woken.

        A checkpoint that need not be flushed may stay in memory, in a directory of the same name, see
        ``forget``. Copies may then start while the engine still writes it, see
        ``CapturedState.being_written``.

        Args:
            copy_most_bytes: If a running sandbox has changed more of its disk than this, its layer is frozen
                where possible. That stops it for as long as a suspend and a wake. Otherwise the layer is
                copied.
            flushed: Whether the caller needs everything on the disk; most of it may then be written in
                advance. Otherwise the capture serves only copies that are made at once.
            in_memory: Whether a checkpoint that need not be flushed may stay in memory.

        Postcondition: on any exception neither the directory nor the layer is left.
        """
        disk = self.paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        freezes = await self._freezes(sandbox, disk, copy_most_bytes)
        on_disk = flushed or freezes or sandbox.row.engine_disk or sandbox.row.state == "suspended"
        if in_memory and not on_disk:
            capture = await self._into_memory(sandbox, into.name, disk, layer_id)
            if capture is not None:
                return capture
        into.mkdir(mode=0o700, parents=True)  # noqa: ASYNC240  # one directory
        try:
            if sandbox.row.state == "suspended":
                await self._link(sandbox, into)
                if sandbox.row.engine_disk:
                    return CapturedState(into, None, (), 0.0)
                if self.complete:
                    return await self._frozen(sandbox, into, disk)
            if sandbox.row.engine_disk:
                return CapturedState(into, None, (), await self._of_machine(sandbox, into))
            if freezes:
                return await self._frozen_below(sandbox, into, disk, flushed=flushed)
            return await self._copied(sandbox, into, disk, layer_id)
        except BaseException:
            await to_the_end(erase(into))
            raise

    @contextlib.asynccontextmanager
    async def captured(self, sandbox: Sandbox, copy_most_bytes: int) -> AsyncIterator[CapturedState]:
        """Capture a sandbox for use inside the block, on the disk. The layer is erased unless a row names it.

        ``copy_most_bytes`` is as in ``capture``.
        """
        into, layer_id = self.paths.snapshots / f"fork-{new_id()}", new_id()
        try:
            with contextlib.ExitStack() as held:
                held.enter_context(self.inventory.pins.during(into.name, layer_id))
                held.callback(self.forget, into)
                capture = await self.capture(
                    sandbox, into, layer_id, copy_most_bytes=copy_most_bytes, flushed=False, in_memory=False
                )
                held.enter_context(self.inventory.pins.during(*capture.stack))
                yield capture
        finally:
            await to_the_end(self.layer_gc.collect(wait=False))

    async def written(self, sandbox: Sandbox, capture: CapturedState) -> None:
        """Return when a capture is completely written. Until then, no copy of it may be reported to a client.

        Raises:
            OutgrownError: The capture does not fit into memory.
            SandboxCrashedError: The sandbox has ended, so the capture cannot be used.
            SandboxNotFoundError: The sandbox was killed, so the capture cannot be used.
        """
        if capture.being_written:
            running = sandbox.require_running()
            machine = running.machine
            assert isinstance(machine, LatePages), "nothing else is still being written"
            try:
                await running.alive(machine.written(), sandbox.sandbox_id)
            except NoSpaceError as error:
                raise OutgrownError(error.message, hint=error.remedy) from error

    def forget(self, into: Path) -> None:
        """Erase the result of ``capture``, also in memory. Copies keep the parts that they need."""
        paths = self.paths
        for path in (into, paths.forks / into.name, paths.forks_pages / into.name):
            self.trash.take(path)

    async def assert_lives(self, sandbox: Sandbox) -> None:
        """Check that the guest of a captured sandbox goes on.

        A guest that was killed while frozen ends right after its thaw, and so would each copy of it.

        Raises:
            SandboxCrashedError: The guest has ended.
            SandboxNotFoundError: The sandbox was killed.
        """
        if sandbox.row.state != "running":
            return
        running = sandbox.require_running()
        try:
            await running.alive(self.agents.ready(running.link), sandbox.sandbox_id)
        except (SandboxCrashedError, SandboxNotFoundError):
            raise
        except (AtollError, OSError) as error:
            _log.warning("sandbox %s does not answer after its checkpoint: %s", sandbox.sandbox_id, error)

    async def _link(self, sandbox: Sandbox, into: Path) -> None:
        await asyncio.to_thread(link_files, self.paths.checkpoint(sandbox.sandbox_id), into)

    async def _freezes(self, sandbox: Sandbox, disk: Path, copy_most_bytes: int) -> bool:
        if not self.complete or sandbox.row.engine_disk or sandbox.row.state != "running":
            return False
        if not self.running_machines.can_step_off(sandbox.row.versions):
            return False
        return await asyncio.to_thread(self.layers.outgrows, disk, copy_most_bytes)

    async def _frozen_below(
        self, sandbox: Sandbox, into: Path, disk: Path, *, flushed: bool
    ) -> CapturedState:
        """Freeze the writable layer of a running sandbox, which then goes on above it as another machine."""

        async def freeze() -> CapturedState:
            await self._link(sandbox, into)
            return await self._frozen(sandbox, into, disk, durable=False)

        if flushed:
            # Write this out now: any wait for the disk while the guest is frozen would include it.
            await asyncio.to_thread(sync_tree, disk)
        capture, stopped_ms = await self.naps.off_disk(sandbox, freeze)
        # The stack may have been shortened in the meantime.
        return CapturedState(into, capture.layer_id, sandbox.row.stack, stopped_ms)

    async def _frozen(
        self, sandbox: Sandbox, into: Path, disk: Path, *, durable: bool = True
    ) -> CapturedState:
        """Turn a sleeping sandbox's writable layer into the layer, without a copy, and give it a new one."""
        layers, old_stack = self.layers, sandbox.row.stack
        async with self.layer_gc.lock:
            try:
                # Finish even if cancelled: nothing may undo this or mount the disk while a thread still moves
                # files.
                layer_id = await to_the_end(asyncio.to_thread(layers.freeze, disk))
                stack = (layer_id, *old_stack)
                await self.inventory.change(sandbox, durable=durable, stack=stack)
            except BaseException:
                await to_the_end(asyncio.to_thread(layers.undo_unknown_freeze, disk, old_stack))
                raise
            await to_the_end(asyncio.to_thread(layers.branch, disk, stack))
        return CapturedState(into, layer_id, stack, 0.0)

    async def _of_machine(self, sandbox: Sandbox, into: Path) -> float:
        running = sandbox.require_running()
        work = self._of_running(running, into, None, paused=sandbox.row.state == "paused")
        stopped_ms, _ = await running.alive(work, sandbox.sandbox_id)
        return stopped_ms

    async def _into_memory(
        self, sandbox: Sandbox, name: str, disk: Path, layer_id: str
    ) -> CapturedState | None:
        """Do the work of ``_copied``, but keep the guest's memory in the host's memory.

        Returns None if it has to be on the disk.
        """
        running = sandbox.require_running()
        if not isinstance(running.machine, LatePages):
            return None
        # Pages that a restore has not yet read from its file are not counted.
        await running.alive(running.machine.prepare(read=True), sandbox.sandbox_id)
        with self._memory.place(name, memory_bytes(running.machine)) as place:
            if place is None:
                return None
            try:
                return await self._copied(sandbox, place.into, disk, layer_id, pages=place.pages)
            except BaseException as error:
                await to_the_end(erase(place.into))
                await to_the_end(erase(place.pages))
                if not _is_full(error):
                    raise
                _log.info(
                    "the memory of sandbox %s is written to the disk instead: %s", sandbox.sandbox_id, error
                )
                return None

    async def _copied(
        self, sandbox: Sandbox, into: Path, disk: Path, layer_id: str, *, pages: Path | None = None
    ) -> CapturedState:
        copy = self.layers.copy(disk, layer_id)
        stopped_ms, whole = 0.0, True
        try:
            if sandbox.row.state == "suspended":
                await copy.last()
            else:
                running = sandbox.require_running()
                if await asyncio.to_thread(self.layers.outgrows, disk, _AT_ONCE_BYTES):
                    await running.alive(copy.first(), sandbox.sandbox_id)
                paused = sandbox.row.state == "paused"
                work = self._of_running(running, into, copy, paused=paused, pages=pages)
                stopped_ms, whole = await running.alive(work, sandbox.sandbox_id)
        except BaseException:
            await to_the_end(copy.abandon())
            raise
        return CapturedState(
            into, layer_id, (layer_id, *sandbox.row.stack), stopped_ms, being_written=not whole
        )

    async def _of_running(
        self,
        running: RunningMachine,
        into: Path,
        copy: LayerCopy | None,
        *,
        paused: bool,
        pages: Path | None = None,
    ) -> tuple[float, bool]:
        """How long the guest was frozen, and whether all memory is written. With ``pages`` it may not be."""
        machine = running.machine
        late = machine if isinstance(machine, LatePages) else None
        if late is not None and pages is not None:
            await late.prepare(into, pages=pages)
        elif late is not None and not paused:
            await late.prepare()
        began = time.perf_counter()
        try:
            if not paused:
                await running.freeze()
            flows = await running.link.flows()
            async with asyncio.TaskGroup() as both:
                write = machine.checkpoint if late is None or paused else late.checkpoint_late
                both.create_task(write(into))
                if copy is not None:
                    both.create_task(copy.last())
        except ExceptionGroup as group:
            raise group.exceptions[0] from None
        finally:
            if not paused:
                await to_the_end(thaw_or_end(running))
        stopped_ms = (time.perf_counter() - began) * 1000
        whole = late is None or await late.written(restorable=pages is not None)
        write_flows(into, flows)
        write_names(into, await running.link.guest.names())
        note_boot(into)
        return stopped_ms, whole


def _is_full(error: BaseException) -> bool:
    return isinstance(error, NoSpaceError) or (isinstance(error, OSError) and error.errno == errno.ENOSPC)
