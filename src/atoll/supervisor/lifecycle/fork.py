"""Forks sandboxes: makes running copies, all or none."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from atoll.errors import InvalidSpecError
from atoll.host import to_the_end
from atoll.policy import check_scope
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.lifecycle.checkpoint import CapturedState, Checkpoints
from atoll.supervisor.lifecycle.clone import Clones
from atoll.supervisor.lifecycle.info import info_of
from atoll.supervisor.lifecycle.unplug import models_of_copies, network_of_copies
from atoll.supervisor.machines.checkpoint_memory import OutgrownError
from atoll.supervisor.state.ids import check_name, new_id, new_machine_uid
from atoll.supervisor.state.leases import NOT_LEFT
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.running_machine import RunningMachine
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.transitions import check_action, check_memory, check_parts
from atoll.supervisor.storage.compaction import Compaction
from atoll.types import DelegationSpec, Lifecycle, ModelAccess, SandboxInfo
from atoll.types.internal import MODEL_ENV, OWN_ATTRIBUTES

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.crash_checkpoint import CrashCheckpoints
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.layer_gc import LayerGC
    from atoll.supervisor.tenants.delegations import Delegations
    from atoll.supervisor.tenants.models import Models
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.supervisor.tenants.volume_quotas import VolumeQuotas

COUNT_MOST = 100
# Copying this much takes about as long as starting a machine.
COPY_MOST_BYTES = 64 << 20
_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Forks:
    """Forks sandboxes.

    Args:
        at_once: How many copies to restore at the same time.
    """

    inventory: Inventory
    operations: Operations
    paths: Paths
    quotas: TeamQuotas
    delegations: Delegations
    models: Models
    volume_quotas: VolumeQuotas
    checkpoints: Checkpoints
    clones: Clones
    attachment: Attachment
    crash_checkpoints: CrashCheckpoints
    layer_gc: LayerGC
    compaction: Compaction
    at_once: int

    async def fork(
        self,
        sandbox: Sandbox,
        count: int,
        lifecycle: Lifecycle | None = None,
        caller: Caller | None = None,
        *,
        names: Sequence[str] = (),
        delegation: DelegationSpec | None = None,
        models: ModelAccess | None = None,
    ) -> list[SandboxInfo]:
        """Make ``count`` running copies of a sandbox as it is now. The sandbox itself does not change.

        Args:
            lifecycle: The copies' lifecycle; None takes the original's.
            caller: The client that waits for the copies: once it has left, no further copy is started.
            names: A name for each copy, in order; empty leaves the copies without names.
            delegation: What each copy is to act under, as a child of what the sandbox acts under.
            models: What models each copy is to have, with a budget of its own. None shares the sandbox's.

        Raises:
            InvalidSpecError: ``count`` is not between 1 and 100, or the lifecycle or the names are invalid.
            NameTakenError: Another sandbox has one of the names; nothing was done.
            StateError: The sandbox has crashed, or has no memory.
            QuotaError: The quota of its team does not allow the copies, or a volume that they could write to
                is full.
            DelegationExpiredError: The sandbox's delegation has ended.
            DelegationError: It does not allow copies, or not as much as they are to have.
            UnsupportedError: The home offers no models, or its team may use none.

        Postcondition: on any exception no copy is left.
        """
        if not 1 <= count <= COUNT_MOST:
            raise InvalidSpecError(f"count is {count}", hint=f"give 1 to {COUNT_MOST}")
        check_names(names, count)
        lifecycle = (lifecycle or sandbox.row.lifecycle).check()
        if lifecycle.on_expiry == "stop":
            check_parts(sandbox.sandbox_id, engine_disk=sandbox.row.engine_disk)
        await self.volume_quotas.check_mounts(sandbox.row.volumes.values())
        wanted: list[str | None] = [*names] or [None] * count
        work = partial(self._with_ids, sandbox, wanted, lifecycle, caller or Caller(), (delegation, models))
        with contextlib.ExitStack() as reserved:
            for name in names:
                reserved.enter_context(self.inventory.reserve_sandbox_name(name))
            return await self._either_way(sandbox, work)

    async def _either_way(
        self, sandbox: Sandbox, work: Callable[..., Awaitable[list[SandboxInfo]]]
    ) -> list[SandboxInfo]:
        """Fork through the host's memory, or through the disk if the memory is too small."""
        try:
            try:
                return await work(in_memory=True)
            except OutgrownError as error:
                _log.info("sandbox %s is forked through the disk: %s", sandbox.sandbox_id, error)
                return await work(in_memory=False)
        finally:
            await to_the_end(self.layer_gc.collect(wait=False))
            self.compaction.look()

    async def _with_ids(
        self,
        sandbox: Sandbox,
        names: Sequence[str | None],
        lifecycle: Lifecycle,
        caller: Caller,
        wanted: tuple[DelegationSpec | None, ModelAccess | None],
        *,
        in_memory: bool,
    ) -> list[SandboxInfo]:
        ids = {new_id(): {"name": name} for name in names}
        for copy_id, columns in ids.items():
            columns |= await self._delegated(sandbox.row, wanted[0], caller, copy_id)
            columns |= await self._with_models(sandbox.row, wanted[1], copy_id)
        limits = dict.fromkeys(ids, sandbox.row.limits)
        async with (
            self.quotas.making(sandbox.row.team, limits, lifecycle),
            self.operations.during(next(iter(ids)), "fork"),
        ):
            return await self._fork(sandbox, ids, lifecycle, caller, in_memory=in_memory)

    async def _fork(
        self,
        sandbox: Sandbox,
        ids: Mapping[str, Columns],
        lifecycle: Lifecycle,
        caller: Caller,
        *,
        in_memory: bool,
    ) -> list[SandboxInfo]:
        directory, layer_id = self.paths.snapshots / f"fork-{new_id()}", new_id()
        volumes = sandbox.row.volume_ids
        with (
            self.inventory.pins.during(directory.name, layer_id, *ids, *volumes, sandbox.row.image_digest),
            contextlib.ExitStack() as held,
        ):
            try:
                async with asyncio.TaskGroup() as both, sandbox.lock:
                    caller.check()
                    check_action("fork", sandbox.row.state, sandbox.sandbox_id)
                    check_memory("fork", sandbox.row)
                    capture = await self.checkpoints.capture(
                        sandbox,
                        directory,
                        layer_id,
                        copy_most_bytes=COPY_MOST_BYTES,
                        flushed=False,
                        in_memory=in_memory,
                    )
                    held.enter_context(self.inventory.pins.during(*capture.stack))
                    original = sandbox.row.but(lifecycle=lifecycle, made_by=caller.made_by)
                    rows = [self._row(original, capture, *named) for named in ids.items()]
                    written = both.create_task(self.checkpoints.written(sandbox, capture))
                    copying = both.create_task(self._copies(rows, original.env, capture, caller, written))
                    # Other operations get the sandbox back once its memory is written, however long the
                    # copies take.
                    await asyncio.wait({written})
            except BaseExceptionGroup as group:
                outgrown = (each for each in group.exceptions if isinstance(each, OutgrownError))
                raise next(outgrown, group.exceptions[0]) from None
            finally:
                self.checkpoints.forget(directory)
        return [info_of(copy, self.quotas) for copy in copying.result()]

    async def _copies(
        self,
        rows: list[SandboxRow],
        env: dict[str, str],
        capture: CapturedState,
        caller: Caller,
        written: asyncio.Task[None],
    ) -> list[Sandbox]:
        turn = asyncio.Semaphore(self.at_once)

        async def one(row: SandboxRow) -> tuple[Sandbox, RunningMachine]:
            async with turn:
                caller.check()
                return await self.clones.clone(
                    row, capture.checkpoint, env, being_written=capture.being_written
                )

        tasks = [asyncio.create_task(one(row)) for row in rows]
        try:
            await _all_or_first_failure([written, *tasks])
            made = [task.result()[0] for task in tasks]
            await self.inventory.add(*made)
        except BaseException:
            await to_the_end(self._undo(tasks))
            raise
        for task in tasks:
            copy, running = task.result()
            self.crash_checkpoints.keep(copy.row, capture.checkpoint)
            self.attachment.attach(copy, running)
        return made

    def _row(self, original: SandboxRow, capture: CapturedState, sandbox_id: str, own: Columns) -> SandboxRow:
        now_s = self.inventory.now_s()
        return original.but(
            sandbox_id=sandbox_id,
            attributes=_inherited(original.attributes),
            state="running",
            created_at=now_s,
            changed_at=now_s,
            started_at=now_s,
            stopped_at=None,
            sleep_cause=None,
            awake_until=None,
            wakes_at=None,
            ends_at=None,
            ends_boot_s=None,
            disk=FIRST_DISK,
            stack=capture.stack,
            generation=original.generation + 1,
            machine_uid=new_machine_uid(),
            reason=None,
            recovered=None,
            unplugged=None,
            snapshot_failed=None,
            idempotency=None,
            promoted=(),
            is_bound=False,
            **NOT_LEFT,
            **{"network": network_of_copies(original), **own},
        )

    async def _delegated(
        self, original: SandboxRow, wanted: DelegationSpec | None, caller: Caller, copy_id: str
    ) -> Columns:
        """What a copy acts under, and what follows from that."""
        made = await self.delegations.for_copy(original, wanted, caller=caller.made_by, copy_id=copy_id)
        if original.volumes:
            check_scope(made, "volumes", "a copy that mounts volumes", original.sandbox_id)
        allowed: Columns = {} if "network" in made.scopes else {"network": "none"}
        return {"delegation": made, **allowed}

    async def _with_models(self, original: SandboxRow, wanted: ModelAccess | None, copy_id: str) -> Columns:
        if wanted is None:
            return {"models": models_of_copies(original)}
        grant = await self.models.grant(wanted, copy_id, original.team, None)
        return {"models": grant, "env": {**MODEL_ENV, **original.env}}

    async def _undo(self, tasks: list[asyncio.Task[tuple[Sandbox, RunningMachine]]]) -> None:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, BaseException):
                await self.clones.undo(*outcome)


def check_names(names: Sequence[str], count: int) -> None:
    """Refuse names that ``count`` copies cannot have.

    Raises:
        InvalidSpecError: Says why.
    """
    if not names:
        return
    if len(names) != count:
        raise InvalidSpecError(
            f"there are {len(names)} names for {count} copies", hint="give one name for each copy, or none"
        )
    for name in names:
        check_name(name)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidSpecError(f"the name {twice!r} is given twice", hint="give each copy a name of its own")


def _inherited(attributes: dict[str, str]) -> dict[str, str]:
    return {name: value for name, value in attributes.items() if not name.startswith(OWN_ATTRIBUTES)}


async def _all_or_first_failure(tasks: Sequence[asyncio.Task[Any]]) -> None:
    done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    for task in done:
        task.result()
