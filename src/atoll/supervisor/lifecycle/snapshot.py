"""Makes, lists and removes snapshots."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from atoll.errors import InUseError, InvalidSpecError, NoSpaceError
from atoll.host import sync_directory, sync_tree, to_the_end, tree_bytes
from atoll.snapshots import SnapshotTree
from atoll.supervisor.integrity.checksums import CheckpointChecksums
from atoll.supervisor.lifecycle.checkpoint import CapturedState, Checkpoints
from atoll.supervisor.lifecycle.unplug import models_of_copies, network_of_copies
from atoll.supervisor.state.ids import check_name, new_id
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.transitions import check_action, check_memory
from atoll.supervisor.storage.build_cache import BuildCache
from atoll.supervisor.storage.compaction import Compaction
from atoll.supervisor.storage.template_rows import TemplateRows
from atoll.supervisor.storage.trash import erase
from atoll.types import SnapshotInfo

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.lifecycle.crash_checkpoint import CrashCheckpoints
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.tenants.quotas import TeamQuotas

COMMENT_LIMIT = 4096
# A copy stops the guest for less time than freezing does, but uses the disk space twice.
COPY_MOST_BYTES = 1 << 30
# An automatic snapshot leaves this much disk space free for others.
_SPARE_BYTES = 512 << 20


class Label(NamedTuple):
    """How a snapshot is called, the template build that it belongs to, and whether it was made by itself."""

    name: str | None
    comment: str
    build_id: str | None = None
    automatic: bool = False


@dataclass(kw_only=True, eq=False, repr=False)
class Snapshots:
    """Makes, lists and removes the snapshots of a home."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    quotas: TeamQuotas
    layers: Layers
    layer_gc: LayerGC
    checkpoints: Checkpoints
    crash_checkpoints: CrashCheckpoints
    compaction: Compaction
    checksums: CheckpointChecksums
    templates: TemplateRows
    steps: BuildCache

    def list(self, sandbox_ref: str | None = None, team: str | None = None) -> list[SnapshotInfo]:
        """All snapshots, or those of one sandbox or team, oldest first. Give a killed sandbox by its id."""
        rows = sorted(self.inventory.snapshots(forgotten=False), key=lambda row: row.created_at)
        if sandbox_ref is not None:
            named = [one for one in self.inventory.sandboxes() if one.row.name == sandbox_ref]
            sandbox_id = named[0].sandbox_id if named else sandbox_ref
            rows = [row for row in rows if row.sandbox_id == sandbox_id]
        return [row.info() for row in rows if team in (None, row.team)]

    async def make(
        self, sandbox: Sandbox, name: str | None, comment: str, build_id: str | None = None
    ) -> SnapshotInfo:
        """Store the sandbox's memory and disk as they are now.

        The sandbox goes on; the snapshot is durable on return.

        A snapshot that belongs to a template build is removed when no template needs it any more.

        Raises:
            InvalidSpecError: The name or the comment is invalid.
            NameTakenError: Another snapshot has the name.
            StateError: The sandbox has crashed.
            QuotaError: Its team has used up its disk quota.
        """
        if len(comment) > COMMENT_LIMIT:
            raise InvalidSpecError(
                f"the comment has {len(comment)} characters", hint=f"give at most {COMMENT_LIMIT}"
            )
        async with self.room_for(name, sandbox.row.team), sandbox.lock:
            check_action("snapshot", sandbox.row.state, sandbox.sandbox_id)
            check_memory("snapshot", sandbox.row)
            label = Label(name, comment, build_id)
            async with self.operations.during(sandbox.sandbox_id, "snapshot"):
                made = await self.make_locked(
                    sandbox, label, lambda row: self.inventory.add_snapshot(row, sandbox)
                )
        return made.info()

    async def make_if_free(self, sandbox: Sandbox, *, needs_bytes: int) -> SnapshotRow | None:
        """Make an automatic snapshot of a sandbox that runs, or None if it does not or another operation has it.

        Args:
            needs_bytes: About how much it takes.

        Raises:
            NoSpaceError: The disk has little more space than that.
            QuotaError: Its team has used up its disk quota.
        """
        free_bytes = (await asyncio.to_thread(shutil.disk_usage, self.paths.snapshots)).free
        if free_bytes < needs_bytes + _SPARE_BYTES:
            raise NoSpaceError(
                f"only {free_bytes >> 20} MiB of the disk are free",
                hint="free some space; snapshots go on by themselves then",
            )
        async with self.room_for(None, sandbox.row.team):
            if sandbox.lock.locked():
                return None
            async with sandbox.lock:
                if sandbox.row.state != "running" or sandbox.unplugged is not None:
                    return None
                label = Label(None, "", automatic=True)
                async with self.operations.during(sandbox.sandbox_id, "snapshot"):
                    return await self.make_locked(
                        sandbox, label, lambda row: self.inventory.add_snapshot(row, sandbox)
                    )

    @contextlib.asynccontextmanager
    async def room_for(self, name: str | None, team: str | None) -> AsyncIterator[None]:
        """Reserve the name of a snapshot that is made inside the block.

        Raises:
            InvalidSpecError: The name is invalid.
            NameTakenError: Another snapshot has the name.
            QuotaError: The team has used up its disk quota.
        """
        check_name(name)
        await self.quotas.check_disk(team)
        with self.inventory.reserve_snapshot_name(name):
            yield

    async def make_locked(
        self, sandbox: Sandbox, label: Label, add: Callable[[SnapshotRow], Awaitable[None]]
    ) -> SnapshotRow:
        """Make a snapshot that ``add`` stores once its files are durable. The caller holds the sandbox's lock.

        Raises:
            StateError: The sandbox has crashed.

        Postcondition: on any exception, ``add``'s included, nothing of it is left.
        """
        try:
            made = await self._make(sandbox, label, add)
        except BaseException:
            await to_the_end(self.layer_gc.collect(wait=False))
            raise
        self.compaction.look()
        return made

    async def remove(self, ref: str) -> None:
        """Remove a snapshot. Its files are erased soon.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            InUseError: It has child snapshots, a sandbox uses its layer, or a template needs it. An automatic
                snapshot stays only for other sandboxes: its own goes on without it.
        """
        inventory = self.inventory
        row = inventory.snapshot(ref)
        if template := self.templates.user_of(row.snapshot_id):
            raise InUseError(
                f"snapshot {ref!r} is needed by the template {template}",
                hint="delete the template, or move its tags to another build",
            )
        if not row.automatic:
            # a build's states do without each other
            others = inventory.snapshots(forgotten=False)
            kept = [one for one in others if one is row or row.build_id is None or one.build_id is None]
            SnapshotTree([one.info() for one in kept]).removable(row.snapshot_id)
        users = [one.row.called for one in inventory.sandboxes() if _needs(one.row, row)]
        if users or inventory.pins.has(row.snapshot_id):
            raise InUseError(
                f"snapshot {ref!r} is needed by {', '.join(users) or 'a sandbox that is being created from it'}",
                hint="kill those sandboxes first",
            )
        await inventory.forget_snapshot(row)
        await self.steps.forget(row.snapshot_id)
        await self.layer_gc.give_up(self.paths.snapshot(row.snapshot_id))

    async def _make(
        self, sandbox: Sandbox, label: Label, add: Callable[[SnapshotRow], Awaitable[None]]
    ) -> SnapshotRow:
        snapshot_id = new_id()
        final = self.paths.snapshot(snapshot_id)
        aside = final.with_name(f"new-{snapshot_id}")
        layer_id = new_id()
        with self.inventory.pins.during(snapshot_id, aside.name, layer_id):
            try:
                # The snapshot has everything before this moment. Writing the files may take long.
                created_at = self.inventory.now_s()
                capture = await self.checkpoints.capture(
                    sandbox, aside / "checkpoint", layer_id, copy_most_bytes=COPY_MOST_BYTES, flushed=True
                )
                await self.checkpoints.assert_lives(sandbox)
                await asyncio.to_thread(self.checksums.write, aside / "checkpoint")
                await asyncio.to_thread(_make_durable, aside, final)
                row = await self._row(sandbox.row, capture, snapshot_id, created_at)
                row = row.but(**label._asdict())
                self.crash_checkpoints.keep(sandbox.row, final / "checkpoint")
                await add(row)
            except BaseException:
                await to_the_end(self._undo(aside, final))
                raise
        return row

    async def _row(
        self, of: SandboxRow, capture: CapturedState, snapshot_id: str, created_at: float
    ) -> SnapshotRow:
        memory = self.paths.snapshot(snapshot_id)
        return SnapshotRow(
            snapshot_id=snapshot_id,
            name=None,
            comment="",
            sandbox_id=of.sandbox_id,
            parent_id=of.snapshot_id,
            created_at=created_at,
            memory_bytes=await asyncio.to_thread(tree_bytes, memory),
            disk_bytes=await asyncio.to_thread(self._disk_bytes, capture),
            stopped_ms=round(capture.stopped_ms, 3),
            **{**of.setup(), "stack": capture.stack, **_allowed(of)},
        )

    def _disk_bytes(self, capture: CapturedState) -> int:
        return self.layers.size_bytes(capture.layer_id) if capture.layer_id else 0

    async def _undo(self, aside: Path, final: Path) -> None:
        await erase(aside)
        await erase(final)


def stands_on(sandbox: SandboxRow, snapshot: SnapshotRow) -> bool:
    """Whether the snapshot's own layer is part of the sandbox's disk."""
    return bool(snapshot.stack) and snapshot.stack[0] in sandbox.stack


def _needs(sandbox: SandboxRow, snapshot: SnapshotRow) -> bool:
    """Whether a snapshot must stay for a sandbox. The layers that it stands on stay in any case."""
    if not snapshot.automatic:
        return stands_on(sandbox, snapshot)
    if sandbox.snapshot_id == snapshot.snapshot_id:
        return True
    is_own = snapshot.sandbox_id in (sandbox.sandbox_id, *sandbox.promoted)
    return not is_own and stands_on(sandbox, snapshot)


def _make_durable(aside: Path, final: Path) -> None:
    sync_tree(aside)
    os.rename(aside, final)
    sync_directory(final.parent)


def _allowed(of: SandboxRow) -> dict[str, Any]:
    return {"network": network_of_copies(of), "models": models_of_copies(of)}
