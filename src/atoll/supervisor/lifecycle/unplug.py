"""Unplugs sandboxes: cuts their networks at once, freezes them, and keeps them so until ``replug``."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError, EngineError, HostError
from atoll.host import to_the_end
from atoll.protocol import UnpluggedAll
from atoll.supervisor.state.transitions import check_action
from atoll.types import EgressPolicy, Unplugged

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.lifecycle.pause import PausedWatcher, Pauses
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.rows import ModelGrant, SandboxRow
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.state.unplug_marks import UnplugMarks

# As for a pause: the host stops a guest that keeps its kernel busy for longer.
_FROZEN_S = 0.5
NO_REASON = "no reason was given"
_HALFWAY = "its supervisor ended while it was being unplugged"
_log = logging.getLogger(__name__)


def network_of_copies(row: SandboxRow) -> EgressPolicy:
    """The egress policy of a sandbox's copies. Copies of an unplugged sandbox get no network."""
    return row.network if row.unplugged is None else "none"


def models_of_copies(row: SandboxRow) -> ModelGrant | None:
    """The models of a sandbox's copies, which share its budget. Copies of an unplugged sandbox get none."""
    return row.models if row.unplugged is None else None


@dataclass(kw_only=True, eq=False, repr=False)
class Unplugs:
    """Unplugs sandboxes, and undoes that."""

    inventory: Inventory
    egress: EgressControl
    marks: UnplugMarks
    pauses: Pauses
    watcher: PausedWatcher
    tasks: Tasks

    async def unplug(self, sandbox: Sandbox, reason: str | None = None) -> None:
        """Cut the sandbox's network at once, also open connections, and freeze it. No use wakes it.

        The network is cut before this waits for anything. An operation that is in progress on the sandbox ends
        first; then the sandbox is frozen. A sleeping sandbox just stays asleep. The first reason counts.

        Raises:
            EngineError: The sandbox cannot be frozen. Its network is cut, and it counts as unplugged.
            HostError: The kernel refused to cut its network. Its relay passes nothing, and it is frozen.
        """
        check_action("unplug", sandbox.row.state, sandbox.sandbox_id)
        await self._go_on(sandbox, self._begin(sandbox, reason))

    async def unplug_all(self, reason: str | None = None) -> UnpluggedAll:
        """Unplug every sandbox: all networks first. A failure does not stop the others."""
        begun = [(each, self._begin(each, reason)) for each in self.inventory.sandboxes()]
        work = (self.tasks.run(self._go_on(each, refusal)) for each, refusal in begun)
        outcomes = await asyncio.gather(*work, return_exceptions=True)
        ended = {each.sandbox_id: outcome for (each, _), outcome in zip(begun, outcomes, strict=True)}
        return UnpluggedAll(
            unplugged=[sandbox_id for sandbox_id, outcome in ended.items() if outcome is None],
            failed={id_: str(outcome) for id_, outcome in ended.items() if outcome is not None},
        )

    async def replug(self, sandbox: Sandbox) -> None:
        """Give an unplugged sandbox its network back, by its policy, and let it run if it ran before.

        A sandbox that is not unplugged stays as it is.

        Raises:
            SandboxCrashedError: The sandbox could not be thawed.

        Postcondition: on any other exception it stays unplugged.
        """
        async with sandbox.lock:
            check_action("unplug", sandbox.row.state, sandbox.sandbox_id)
            unplugged = sandbox.unplugged
            if unplugged is None:
                return
            self.marks.remove(sandbox.sandbox_id)
            try:
                await self.egress.mend(sandbox.sandbox_id)
                sandbox.unplugging = None
                await self._wake(sandbox, unplugged)
            except BaseException:
                if sandbox.row.state != "crashed":
                    await to_the_end(self._again(sandbox, unplugged))
                raise

    async def _wake(self, sandbox: Sandbox, unplugged: Unplugged) -> None:
        if unplugged.ran and sandbox.row.state == "paused":
            return await self.pauses.thaw(sandbox, {"unplugged": None})
        await self.inventory.change(sandbox, unplugged=None)
        if sandbox.row.state == "paused":
            self.watcher.watch(sandbox, sandbox.require_running())
        return None

    async def _again(self, sandbox: Sandbox, unplugged: Unplugged) -> None:
        """Undo a replug that failed."""
        sandbox.unplugging = unplugged
        self._cut(sandbox)
        await self._store(sandbox, unplugged, sandbox.row.state == "paused")

    def marks_stamp(self) -> int:
        """See ``UnplugMarks.stamp``."""
        return self.marks.stamp()

    def heed(self, sandbox: Sandbox, *, was_cut: bool = False) -> bool:
        """Begin an unplug again that an earlier supervisor or a client has begun. ``settle`` finishes it.

        Args:
            was_cut: Whether the sandbox's link was found cut.

        Returns whether there was one.
        """
        if sandbox.unplugged is not None:
            return False
        mark = self.marks.read(sandbox.sandbox_id)
        if mark is not None:
            sandbox.unplugging = Unplugged(at=mark.at, reason=mark.reason)
        elif was_cut:
            sandbox.unplugging = Unplugged(at=self.inventory.now_s(), reason=_HALFWAY)
        else:
            return False
        self._cut(sandbox)
        return True

    async def settle(self, sandbox: Sandbox) -> None:
        """Finish the unplug of ``heed``, and freeze an unplugged sandbox that runs. Only logs a failure."""
        halfway = sandbox.unplugging is not None or sandbox.row.state == "running"
        if sandbox.unplugged is None or not halfway or sandbox.row.state == "killed":
            return
        try:
            await self.unplug(sandbox)
        except (AtollError, OSError) as error:
            _log.error("sandbox %s is unplugged, but not frozen: %s", sandbox.sandbox_id, error)

    def _begin(self, sandbox: Sandbox, reason: str | None) -> OSError | None:
        """Cut the sandbox's network, and have it refuse every use. Waits for nothing."""
        if sandbox.unplugged is None:
            sandbox.unplugging = Unplugged(at=self.inventory.now_s(), reason=reason or NO_REASON)
        return self._cut(sandbox)

    def _cut(self, sandbox: Sandbox) -> OSError | None:
        try:
            self.egress.cut(sandbox.sandbox_id)
        except OSError as error:
            _log.error("the network of sandbox %s cannot be cut: %s", sandbox.sandbox_id, error)
            return error
        return None

    async def _go_on(self, sandbox: Sandbox, refusal: OSError | None) -> None:
        if sandbox.unplugging is not None:
            await asyncio.to_thread(self.marks.write, sandbox.sandbox_id, sandbox.unplugging)
        async with sandbox.lock:
            check_action("unplug", sandbox.row.state, sandbox.sandbox_id)
            unplugged = sandbox.unplugged
            if unplugged is None:
                return  # a client has replugged it meanwhile
            frozen, failure = await self._frozen(sandbox)
            await self._store(sandbox, unplugged, frozen)
        if failure is not None:
            raise EngineError(
                f"sandbox {sandbox.row.called} has no network any more, but it cannot be frozen: {failure}",
                hint="`atoll kill` ends it in any case",
                sandbox_id=sandbox.sandbox_id,
            ) from failure
        if refusal is not None:
            raise HostError(
                f"sandbox {sandbox.row.called} is frozen and its relay passes nothing, but the kernel refused to "
                f"cut its network: {refusal}",
                hint="`atoll kill` ends it in any case",
                sandbox_id=sandbox.sandbox_id,
            ) from refusal

    async def _frozen(self, sandbox: Sandbox) -> tuple[bool, Exception | None]:
        """Freeze a running sandbox. Returns whether it is frozen in memory, and why not."""
        self.marks.release(sandbox.sandbox_id)
        running = sandbox.running
        if running is None or sandbox.row.state != "running" or running.gone.is_set():
            return sandbox.row.state == "paused", None
        try:
            await running.alive(running.freeze(within_s=_FROZEN_S), sandbox.sandbox_id)
        except (AtollError, OSError) as error:
            return False, None if running.gone.is_set() else error
        return True, None

    async def _store(self, sandbox: Sandbox, unplugged: Unplugged, frozen: bool) -> None:
        """Write into the row that the sandbox is unplugged. If that fails, its mark on the disk still says so."""
        row = sandbox.row
        ran = unplugged.ran or row.state == "running"
        changes: Columns = {
            "state": "paused" if frozen else row.state,
            "unplugged": Unplugged(at=unplugged.at, reason=unplugged.reason, ran=ran),
        }
        try:
            if any(getattr(row, name) != value for name, value in changes.items()):
                await self.inventory.change(sandbox, **changes)
        except (AtollError, OSError) as error:
            _log.warning("cannot store that sandbox %s is unplugged: %s", sandbox.sandbox_id, error)
            sandbox.row = row.but(**changes)
            return
        sandbox.unplugging = None
        self.egress.settled(sandbox.sandbox_id)
        self.marks.remove(sandbox.sandbox_id)
