"""Compares the files of sandboxes and snapshots by their layers, without waking any of them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.errors import InvalidSpecError, SandboxNotFoundError, StateError, UnsupportedError
from atoll.snapshots import LayerDiff, writable_layer
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import FilesDiff

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths

MOST_CHANGES = 10_000
# The agent writes these files for each sandbox.
_IDENTITY = frozenset({"/etc/hostname", "/etc/hosts", "/etc/machine-id"})
_TRIES = 3
_Row = SandboxRow | SnapshotRow


@dataclass(kw_only=True, eq=False, repr=False)
class Diffs:
    """Compares files.

    Args:
        complete: Whether the kernel gives the complete kind of overlay.
    """

    inventory: Inventory
    paths: Paths
    layers: Layers
    sandbox_planner: SandboxPlanner
    agents: Agents
    complete: bool

    async def diff(self, sandbox: Sandbox, base: str, paths: Sequence[str]) -> FilesDiff:
        """Compare a sandbox's files with those of ``base``, the id or name of a sandbox or snapshot.

        The result leaves out memory file systems, volumes and the files of the sandbox's identity. It may
        include writes of a running sandbox during the comparison.

        Args:
            paths: Absolute paths to look at; empty is everything.

        Raises:
            InvalidSpecError: The two have different teams or images, or a path is not absolute.
            NotFoundError: There is no such sandbox or snapshot.
            UnsupportedError: The engine keeps one of the disks.
            StateError: A disk was moved to other layers again and again.
        """
        for path in paths:
            if not path.startswith("/") or ".." in path.split("/"):
                raise InvalidSpecError(f"the path is {path!r}", hint="give absolute paths without ..")
        other = self._other(base)
        rows = [_row(other), sandbox.row]
        _check_pair(sandbox.row, rows[0])
        for _ in range(_TRIES):
            for each in (other, sandbox):
                await self._flush(each)
            rows = [_row(other), sandbox.row]
            with self.inventory.pins.during(*rows[0].stack, *rows[1].stack):
                before, after = (self._stack(row) for row in rows)
                work = LayerDiff(before, after, paths=paths, most=MOST_CHANGES, complete=self.complete)
                found = await _run(work)
            if [_standing(_row(other)), _standing(sandbox.row)] == [_standing(row) for row in rows]:
                return _told(found, paths)
        raise StateError("a disk was moved to other layers meanwhile", hint="try again")

    def _other(self, ref: str) -> Sandbox | SnapshotRow:
        try:
            return self.inventory.sandbox(ref)
        except SandboxNotFoundError:
            return self.inventory.snapshot(ref)

    async def _flush(self, one: Sandbox | SnapshotRow) -> None:
        """Have a running guest flush unsaved data to its disk. A paused guest keeps it in memory."""
        if isinstance(one, Sandbox) and one.row.state == "running" and one.running is not None:
            running = one.running
            before = running.link.payload_bytes()
            try:
                await running.alive(self.agents.flush(running.link), one.sandbox_id)
            finally:
                # the supervisor asked, not a client: a look keeps no sandbox awake
                running.own_bytes += running.link.payload_bytes() - before

    def _stack(self, row: _Row) -> list[Path]:
        stack = [self.layers.path(layer_id) for layer_id in row.stack]
        if isinstance(row, SandboxRow):
            stack.insert(0, writable_layer(self.paths.disk(row.sandbox_id, row.disk)))
        return [*stack, *self.sandbox_planner.image(row).lowers]


def _told(found: FilesDiff, paths: Sequence[str]) -> FilesDiff:
    """The changes without the files of a sandbox's identity, unless they were asked for."""
    hidden = _IDENTITY - set(paths)
    return FilesDiff(changes=[each for each in found if each.path not in hidden], truncated=found.truncated)


async def _run(work: LayerDiff) -> FilesDiff:
    thread = asyncio.ensure_future(asyncio.to_thread(work.run))
    try:
        return await asyncio.shield(thread)
    except asyncio.CancelledError:
        work.stopped.set()
        await asyncio.wait({thread})  # it reads layers that the caller pins
        raise


def _row(one: Sandbox | SnapshotRow) -> _Row:
    return one.row if isinstance(one, Sandbox) else one


def _standing(row: _Row) -> tuple[object, ...]:
    """The facts that change when a disk moves to other layers."""
    return (row.stack, row.disk if isinstance(row, SandboxRow) else None)


def _check_pair(one: _Row, other: _Row) -> None:
    if one.team != other.team or one.image_digest != other.image_digest:
        what = "teams" if one.team != other.team else "images"
        raise InvalidSpecError(
            f"they are of different {what}", hint="compare forks and snapshots of one sandbox"
        )
    if one.engine_disk or other.engine_disk:
        raise UnsupportedError(
            "the files cannot be compared, because the engine keeps the disk",
            hint="compare them inside; `atoll doctor` says how to get disks made of layers",
        )
