"""Promotes a fork: the original goes on from the fork's state. A snapshot keeps its old state."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.errors import InvalidSpecError
from atoll.host import to_the_end
from atoll.policy import check_alive
from atoll.supervisor.lifecycle.checkpoint import CapturedState, Checkpoints
from atoll.supervisor.lifecycle.rollback import next_disk
from atoll.supervisor.lifecycle.snapshot import COPY_MOST_BYTES, Label, Snapshots
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.transitions import check_action, check_memory, check_plugged
from atoll.types import SnapshotInfo
from atoll.types.internal import ORIGIN_ATTRIBUTE

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.clone import Clones
    from atoll.supervisor.lifecycle.discard import Discards
    from atoll.supervisor.lifecycle.kill import Kills
    from atoll.supervisor.lifecycle.naps import Naps
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns, Leases
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.tenants.quotas import TeamQuotas

# The ids that lead to a sandbox which took over their state; older ones lead nowhere.
_KNOWN_MOST = 100


@dataclass(kw_only=True, eq=False, repr=False)
class Promotions:
    """Promotes sandboxes."""

    inventory: Inventory
    operations: Operations
    leases: Leases
    quotas: TeamQuotas
    checkpoints: Checkpoints
    snapshots: Snapshots
    naps: Naps
    clones: Clones
    attachment: Attachment
    sandbox_links: SandboxLinks
    discards: Discards
    kills: Kills

    async def promote(self, original: Sandbox, winner: Sandbox, name: str | None) -> SnapshotInfo:
        """Continue ``original`` from the memory and disk of ``winner``, which ends. Returns its old state.

        The original keeps its id, name, addresses, lease, policy and limits. Both stand still meanwhile, so
        nothing that either of them does is lost. The change is durable when this returns.

        Args:
            name: The name of the snapshot that keeps the original's old state.

        Raises:
            InvalidSpecError: The winner is of another team or image, or mounts other volumes; or the name is
                invalid.
            NameTakenError: Another snapshot has the name.
            SandboxNotFoundError: One of the two was killed.
            StateError: One of the two has crashed, or has no memory.
            UnpluggedError: One of the two is unplugged.
            QuotaError: The quota of their team allows no running sandbox with the original's limits, or has no
                disk left.
            SandboxCrashedError: The winner's guest ended as soon as it ran with the original's limits.

        Postcondition: on any exception both are as they were, and no snapshot is left.
        """
        self._check_pair(original, winner)
        first, second = sorted((original, winner), key=lambda each: each.sandbox_id)
        async with self.snapshots.room_for(name, original.row.team), first.lock, second.lock:
            self._check_pair(original, winner)
            columns: Columns = {}
            if original.running is None:
                columns = self.leases.woken(original.row, original.row.lifecycle.ttl_s)
            label = Label(name, f"before {winner.sandbox_id} was promoted")
            with self._places(original.row, winner.row):
                async with (
                    self.operations.during(original.sandbox_id, "promote"),
                    self.naps.asleep(winner),
                    self.naps.asleep(original),
                    self.checkpoints.captured(winner, COPY_MOST_BYTES) as capture,
                ):
                    before, had = original.row, original.running
                    link = None if had is not None else await self.sandbox_links.waiting(original)
                    original.link = link
                    switch = partial(self._switch, original, winner, capture, columns)
                    kept = await self.snapshots.make_locked(original, label, switch)
                    _hang_up(link, winner.link)
                    discarded = self.discards.discard(original, before, had, link, capture.checkpoint)
                    await to_the_end(discarded)
                    await to_the_end(self.kills.clear(winner))
        return kept.info()

    def _check_pair(self, original: Sandbox, winner: Sandbox) -> None:
        for row in (original.row, winner.row):
            check_alive(
                row.delegation, self.leases.clock.unix_s(), f"promote sandbox {row.called}", row.sandbox_id
            )
        _check_pair(original, winner)

    @contextlib.contextmanager
    def _places(self, original: SandboxRow, winner: SandboxRow) -> Iterator[None]:
        """Book a place for each that runs. If only the winner runs, the original takes its place."""
        with contextlib.ExitStack() as booked:
            if original.state == "suspended" and winner.state != "suspended":
                booked.enter_context(self.quotas.running(winner, original.limits))
            else:
                booked.enter_context(self.quotas.running(original))
                if winner.state != "suspended":
                    booked.enter_context(self.quotas.running(winner))
            yield

    async def _switch(
        self, original: Sandbox, winner: Sandbox, capture: CapturedState, columns: Columns, kept: SnapshotRow
    ) -> None:
        """Have the original run from the winner's state, and the winner count as killed: the moment of it all.

        ``kept`` is stored in the same step.
        """
        row = promoted(original.row, winner.row).but(stack=capture.stack)
        fresh, running = await self.clones.clone(row, capture.checkpoint, winner.row.env)
        try:
            for each in (original, winner):  # an alarm may have rung meanwhile
                check_plugged("promote", each)
            changes: dict[str, Any] = {name: getattr(fresh.row, name) for name in _CHANGED}
            changes |= {**columns, **running.columns(), "state": "running", "napping": False}
            changes |= {"sleep_cause": None, "wakes_at": None}
            await self.inventory.promote(original, winner, kept, **changes)
        except BaseException:
            await to_the_end(self.clones.undo(fresh, running))
            raise
        self.attachment.attach(original, running)


_CHANGED = (
    "disk",
    "stack",
    "generation",
    "versions",
    "snapshot_id",
    "services",
    "engine_disk",
    "reason",
    "has_memory",
    "promoted",
)


def promoted(row: SandboxRow, winner: SandboxRow) -> SandboxRow:
    """The row of a sandbox that continues from another's state, with a generation that was never used before."""
    known = (*row.promoted, *winner.promoted, winner.sandbox_id)
    return row.but(
        disk=next_disk(row.disk),
        stack=winner.stack,
        generation=max(row.generation, winner.generation) + 1,
        versions=winner.versions,
        snapshot_id=winner.snapshot_id,
        services=winner.services,
        engine_disk=winner.engine_disk,
        reason=None,
        has_memory=True,
        promoted=known[-_KNOWN_MOST:],
    )


def _hang_up(*links: Link | None) -> None:
    """End the connections of clients that were kept during the sleep, in case it had to be undone."""
    for link in links:
        if link is not None:
            with contextlib.suppress(OSError):  # closing the link leaves them without an answer
                link.end_dialled()


def _check_pair(original: Sandbox, winner: Sandbox) -> None:
    """Refuse sandboxes of which one cannot take over the other's state.

    Raises:
        AtollError: Says why.
    """
    for each in (original, winner):
        check_action("promote", each.row.state, each.sandbox_id)
        check_memory("promote", each.row)
        check_plugged("promote", each)
    told = f"sandbox {winner.row.called} cannot be promoted to {original.row.called}"
    if winner is original:
        raise InvalidSpecError(f"{told}: it is the same sandbox", hint="name a fork of it")
    if winner.row.team != original.row.team:
        raise InvalidSpecError(f"{told}: it belongs to another team", hint="promote one of the same team")
    if winner.row.image_digest != original.row.image_digest:
        raise InvalidSpecError(f"{told}: it is of another image", hint="promote a fork of the sandbox")
    if winner.row.attributes.get(ORIGIN_ATTRIBUTE) not in (
        None,
        original.row.attributes.get(ORIGIN_ATTRIBUTE),
    ):
        # a server holds it to the network of its snapshot, to which the original is not held
        raise InvalidSpecError(f"{told}: it is of another snapshot", hint="promote a fork of the sandbox")
    if winner.row.volumes != original.row.volumes:
        raise InvalidSpecError(f"{told}: it mounts other volumes", hint="promote a fork of the sandbox")
