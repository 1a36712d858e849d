"""The sandboxes and snapshots of a home: read from memory, stored in the database."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from atoll.errors import AtollError, SandboxNotFoundError, SnapshotNotFoundError
from atoll.snapshots import Merges, Stack
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.journal import Journal
from atoll.supervisor.state.leases import Leases, LeaseTable
from atoll.supervisor.state.pins import Pins
from atoll.supervisor.state.reservations import Reservations
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox

_TICK_S = 1e-6
_log = logging.getLogger(__name__)


class Inventory(Reservations):
    """Keeps all sandboxes and snapshots.

    Args:
        database: The database, open.
        leases: Computes their lease columns.
        due: Hears of every new or changed row.
        journal: Logs every change that was stored.

    Attributes:
        pins: The ids of things in the making, which have no row yet.
        merges: Layers that can shorten stacks.
    """

    def __init__(self, database: Database, leases: Leases, due: LeaseTable, journal: Journal) -> None:
        self._database = database
        self._leases = leases
        self._clock = leases.clock.unix_s
        self._due = due
        self._journal = journal
        super().__init__()
        self._sandboxes: dict[str, Sandbox] = {}
        self._snapshots: dict[str, SnapshotRow] = {}
        self._forgetting: set[str] = set()
        self._newest_s = 0.0
        self.pins = Pins()
        self.merges = Merges()

    async def load(self) -> None:
        """Read the database."""
        self._sandboxes = {row.sandbox_id: Sandbox(row) for row in await self._database.all(SandboxRow)}
        self._snapshots = {row.snapshot_id: row for row in await self._database.all(SnapshotRow)}
        stamps = [one.row.created_at for one in self._sandboxes.values()]
        stamps += [row.created_at for row in self._snapshots.values()]
        self._newest_s = max(stamps, default=0.0)
        await self._rebase()

    async def _rebase(self) -> None:
        """Convert the times of rows that an earlier boot of the host wrote to the clock of this boot."""
        rebased = []
        for sandbox in self._sandboxes.values():
            if columns := self._leases.rebased(sandbox.row):
                sandbox.row = sandbox.row.but(**columns)
                rebased.append(sandbox.row)
        if rebased:
            try:
                await self._database.put(*rebased)
            except AtollError as error:
                _log.warning("cannot remove files of an earlier boot of the host: %s", error)

    def now_s(self) -> float:
        """Unix seconds for a new row: later than every earlier row's, whatever the host's clock does."""
        self._newest_s = max(self._clock(), self._newest_s + _TICK_S)
        return self._newest_s

    def sandboxes(self) -> list[Sandbox]:
        """All sandboxes that are not killed."""
        return [sandbox for sandbox in self.all() if sandbox.row.state != "killed"]

    def all(self) -> list[Sandbox]:
        """All sandboxes, including sandboxes that are being killed."""
        return list(self._sandboxes.values())

    def snapshots(self, *, forgotten: bool = True) -> list[SnapshotRow]:
        """All snapshots, the oldest first; ``forgotten`` includes those whose row is being deleted."""
        rows = self._snapshots.values()
        return [row for row in rows if forgotten or row.snapshot_id not in self._forgetting]

    def sandbox(self, ref: str) -> Sandbox:
        """The sandbox with that id or name.

        Raises:
            SandboxNotFoundError: There is no such sandbox.
        """
        found = self._sandboxes.get(ref) or _named(self._sandboxes.values(), ref)
        if found is None or found.row.state == "killed":
            raise SandboxNotFoundError(f"there is no sandbox {ref!r}", hint=self._whereabouts(ref))
        return found

    def _whereabouts(self, ref: str) -> str:
        """Where to look for a sandbox that is not there."""
        into = next((one.row for one in self.sandboxes() if ref in one.row.promoted), None)
        if into is None:
            return "`atoll ls` lists them"
        return f"it was promoted: sandbox {into.called} goes on from its state"

    def snapshot(self, ref: str) -> SnapshotRow:
        """The snapshot with that id or name.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
        """
        found = self._snapshots.get(ref) or next(
            (row for row in self._snapshots.values() if row.name == ref), None
        )
        if found is None or found.snapshot_id in self._forgetting:
            raise SnapshotNotFoundError(
                f"there is no snapshot {ref!r}", hint="`atoll snapshot ls` lists them"
            )
        return found

    async def add(self, *sandboxes: Sandbox) -> None:
        """Store new sandboxes, all or none. This starts their lives and leases."""
        for sandbox in sandboxes:
            sandbox.row = sandbox.row.but(**self._leases.born(sandbox.row))
        await self._database.put(*(sandbox.row for sandbox in sandboxes))
        self._sandboxes.update({sandbox.sandbox_id: sandbox for sandbox in sandboxes})
        for sandbox in sandboxes:
            self._journal.changed(None, sandbox.row)
            self._due.note(sandbox.row)

    async def change(
        self, sandbox: Sandbox, *, durable: bool = False, freeing: bool = False, **changes: object
    ) -> None:
        """Change a sandbox's row.

        With ``durable`` it is on the disk on return. ``freeing`` is as in ``put``.
        """
        now_s = self._changing_s(sandbox.row.changed_at)
        if sandbox.row.state == "running" and changes.get("state", "running") != "running":
            changes.setdefault("stopped_at", now_s)
        state = changes.get("state", sandbox.row.state)
        if state != sandbox.row.state:
            changes.setdefault("sleep_cause", "request" if state in ("paused", "suspended") else None)
            changes.setdefault("wakes_at", None)
        row = sandbox.row.but(changed_at=now_s, **changes)
        await self._database.put(row, durable=durable, freeing=freeing)
        old, sandbox.row = sandbox.row, row
        self._journal.changed(old, row)
        self._due.note(row)

    async def forget(self, sandbox: Sandbox) -> None:
        """Remove a sandbox's row."""
        await self._database.delete(sandbox.row)
        self._sandboxes.pop(sandbox.sandbox_id, None)

    async def add_snapshot(self, row: SnapshotRow, sandbox: Sandbox) -> None:
        """Store a new snapshot, which becomes the base of its sandbox."""
        changed = sandbox.row.but(
            snapshot_id=row.snapshot_id, changed_at=self._changing_s(sandbox.row.changed_at)
        )
        await self._database.put(row, changed, durable=True)
        self._snapshots[row.snapshot_id] = row
        sandbox.row = changed
        self._journal.stored(row)

    async def promote(self, original: Sandbox, winner: Sandbox, kept: SnapshotRow, **changes: object) -> None:
        """Store that ``original`` has taken over the state of ``winner``, which is killed.

        ``kept`` is the snapshot of its old state. All of this is stored or nothing. It is durable when this
        returns.
        """
        row = original.row.but(changed_at=self._changing_s(original.row.changed_at), **changes)
        gone = winner.row.but(state="killed", name=None, changed_at=self._changing_s(winner.row.changed_at))
        await self._database.put(kept, row, gone, durable=True)
        self._snapshots[kept.snapshot_id] = kept
        self._journal.stored(kept)
        for sandbox, new in ((original, row), (winner, gone)):
            old, sandbox.row = sandbox.row, new
            self._journal.changed(old, new)
            self._due.note(new)

    async def own_snapshot(self, snapshot_id: str, build_id: str) -> None:
        """Make a snapshot belong to a template build."""
        before = self.snapshot(snapshot_id)
        row = before.but(build_id=build_id, changed_at=self._changing_s(before.changed_at))
        # At once: a restack in the meantime must not write the row without its build.
        self._snapshots[snapshot_id] = row
        try:
            await self._database.put(row, durable=True)
        except BaseException:
            self._snapshots[snapshot_id] = self._snapshots[snapshot_id].but(build_id=before.build_id)
            raise

    async def restack(self, change: Callable[[Stack], Stack]) -> None:
        """Move snapshots to other layers with the same content. This is durable when it returns.

        The caller pins their earlier layers meanwhile.
        """
        before = {row.snapshot_id: row for row in self._snapshots.values() if change(row.stack) != row.stack}
        for gone in self._forgetting & before.keys():
            del before[gone]
        after = {
            id_: row.but(stack=change(row.stack), changed_at=self._changing_s(row.changed_at))
            for id_, row in before.items()
        }
        if not after:
            return
        self._snapshots.update(after)
        try:
            await self._database.put(*after.values(), durable=True)
        except BaseException:
            self._snapshots.update({id_: before[id_] for id_ in before.keys() & self._snapshots.keys()})
            raise

    def _changing_s(self, before_s: float) -> float:
        """Unix seconds for a change of a row.

        These times increase, so that an old copy is recognized by its time.
        """
        return max(self._clock(), before_s + _TICK_S)

    async def forget_snapshot(self, row: SnapshotRow) -> None:
        """Delete a snapshot's row. From the call on it cannot be found, so nothing new starts from it.

        Its children become children of its parent.
        """
        self._forgetting.add(row.snapshot_id)
        try:
            await self._adopt_children(row)
            await self._database.delete(row)
            self._snapshots.pop(row.snapshot_id, None)
        finally:
            self._forgetting.discard(row.snapshot_id)

    async def _adopt_children(self, parent: SnapshotRow) -> None:
        children = [
            each.but(parent_id=parent.parent_id, changed_at=self._changing_s(each.changed_at))
            for each in self._snapshots.values()
            if each.parent_id == parent.snapshot_id and each.snapshot_id not in self._forgetting
        ]
        if children:
            before = {each.snapshot_id: self._snapshots[each.snapshot_id] for each in children}
            self._snapshots.update({each.snapshot_id: each for each in children})
            try:
                await self._database.put(*children, durable=True)
            except BaseException:
                self._snapshots.update(before)
                raise


def row_of(inventory: Inventory, sandbox_id: str) -> SandboxRow | None:
    """The row of the sandbox with that id; None if there is none any more. Another one's name is no id."""
    try:
        row = inventory.sandbox(sandbox_id).row
    except SandboxNotFoundError:
        return None
    return row if row.sandbox_id == sandbox_id else None


def _named(sandboxes: Iterable[Sandbox], name: str) -> Sandbox | None:
    return next((sandbox for sandbox in sandboxes if sandbox.row.name == name), None)
