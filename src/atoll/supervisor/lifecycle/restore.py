"""Restores sleeping sandboxes from their checkpoints."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from atoll.engines import MachineEndedError
from atoll.errors import AtollError, DamagedError, SandboxCrashedError
from atoll.host import to_the_end
from atoll.supervisor.integrity.consistency import assert_disk, same_instant
from atoll.supervisor.lifecycle.checkpoint_files import read_flows, read_names
from atoll.supervisor.machines.identity import woken_init
from atoll.supervisor.machines.prestarted import PrestartedDiedError

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.compaction import Compaction
    from atoll.supervisor.storage.trash import Trash

_log = logging.getLogger(__name__)
PARTED_REASON = "it ran for a moment while it was being woken, so its memory and its disk no longer match"


@dataclass(kw_only=True, eq=False, repr=False)
class Restores:
    """Restores sandboxes. The caller holds the sandbox's lock."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    sandbox_links: SandboxLinks
    attachment: Attachment
    compaction: Compaction
    trash: Trash

    async def restore(self, sandbox: Sandbox, columns: Columns, *, durable: bool = True) -> None:
        """Restore a sleeping sandbox from its checkpoint, and change these columns of its row with it.

        Raises:
            DamagedError: Its checkpoint has changed. It has crashed.
            SandboxCrashedError: Its guest ended as soon as it ran. It sleeps again, or has crashed.
        """
        try:
            await self._restore(sandbox, columns, durable=durable)
        except PrestartedDiedError:
            if sandbox.row.state != "suspended":  # its guest has run for a moment
                raise
            await self._restore(sandbox, columns, durable=durable)

    async def _restore(self, sandbox: Sandbox, columns: Columns, *, durable: bool) -> None:
        assert_disk(self.paths.disk(sandbox.sandbox_id, sandbox.row.disk), sandbox.sandbox_id)
        await self.compaction.shorten(sandbox)
        checkpoint = self.paths.checkpoint(sandbox.sandbox_id)
        row = sandbox.row.but(generation=sandbox.row.generation + 1)
        link, kept = await self.sandbox_links.take(sandbox)
        waking = self.operations.during(sandbox.sandbox_id, "wake", link_id=link.link_id)
        async with contextlib.AsyncExitStack() as under_way:
            try:
                await under_way.enter_async_context(waking)
                if not kept:
                    await link.guest.know(read_names(checkpoint))
                plan = self.sandbox_planner.of(row, checkpoint=checkpoint)
                wanted = woken_init(row, self.sandbox_planner.image(row))
                running = await self.running_machines.begin(plan, link, wanted)
                try:
                    if kept:
                        link.release()
                    else:
                        await link.reset_connections(read_flows(checkpoint))
                    changes = {**columns, "generation": row.generation, "reason": None}
                    # The guest already runs. If this were not written, its memory would be lost: the next
                    # step erases the checkpoint.
                    await self.attachment.take_up(sandbox, running, durable=durable, freeing=True, **changes)
                except BaseException:
                    await to_the_end(self.running_machines.end(running))
                    raise
            except DamagedError as error:
                await to_the_end(self._give_up_memory(sandbox, link, error.message))
                raise
            except BaseException as error:
                await to_the_end(self._put_back(sandbox, link, kept))
                raise _woken_badly(sandbox, error) from None
        if not row.engine_disk:  # with an engine disk, a crash would leave only the checkpoint
            self.trash.take(checkpoint)

    async def _put_back(self, sandbox: Sandbox, link: Link, kept: bool) -> None:
        """Undo a failed wake: the sandbox sleeps again, unless its guest has changed its disk meanwhile."""
        checkpoint = self.paths.checkpoint(sandbox.sandbox_id)
        disk = self.paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        if sandbox.row.engine_disk or await asyncio.to_thread(same_instant, checkpoint, disk):
            # Only a link that was kept during the sleep still has the sandbox's connections.
            if kept:
                link.hold()
                sandbox.link = link
            else:
                await link.aclose()
            return
        await self._give_up_memory(sandbox, link, PARTED_REASON)

    async def _give_up_memory(self, sandbox: Sandbox, link: Link, reason: str) -> None:
        """Mark a sandbox whose memory can no longer be used as crashed: ``on_crash`` says how it goes on."""
        awake = sandbox.row.awake
        crashed: dict[str, Any] = {
            "state": "crashed",
            "reason": reason,
            "link_id": None,
            "crashed_running": awake,
        }
        # The memory first: even if the row is not written, nothing may restore this memory.
        self.trash.take(self.paths.checkpoint(sandbox.sandbox_id))
        try:
            await self.inventory.change(sandbox, **crashed)
        except (AtollError, OSError) as error:
            _log.warning("cannot store the crash of sandbox %s: %s", sandbox.sandbox_id, error)
            sandbox.row = sandbox.row.but(**crashed)
        await link.aclose()


def _woken_badly(sandbox: Sandbox, error: BaseException) -> BaseException:
    """The error to report for a failed wake.

    A guest that was killed while frozen fails every wake like this.
    """
    if not isinstance(error, SandboxCrashedError | MachineEndedError) or sandbox.row.state != "suspended":
        return error
    remedy = (
        "roll it back to a snapshot"
        if sandbox.row.engine_disk
        else "`atoll resume --no-memory` boots its disk"
    )
    return SandboxCrashedError(
        f"sandbox {sandbox.row.called} ended while it was being woken, and is suspended again",
        hint=f"try again; if it ends each time, {remedy}",
        sandbox_id=sandbox.sandbox_id,
    )
