"""Starts a machine before the checkpoint to restore in it is known, which is half of a wake or fork."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from atoll.engines import Bind, Engine, PrestartedMachine, Prestarting, PrestartPlan
from atoll.errors import AtollError, EngineError, UnsupportedError
from atoll.host import Mounts, new_netns, remove_empty_place, to_the_end, unpin
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.rows import Versions
from atoll.supervisor.storage.binaries import AGENT_ARGV, Programs
from atoll.types import HostMemory, Limits

if TYPE_CHECKING:
    from atoll.supervisor.machines.sandbox_plan import SandboxPlan
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.tasks import Tasks

# Starting one takes a processor for a moment: the machine that was just restored comes first. But a series of
# forks finds it ready by the time each has written its memory.
_REFILL_PAUSE_S = 0.03
# The pause after one could not be made: until then each wake takes its usual time.
_REST_S, _REST_MOST_S = 10.0, 600.0
_CONSOLE = "console.log"
_log = logging.getLogger(__name__)


class _Shape(msgspec.Struct, frozen=True):
    """The properties of a machine that cannot change after its start."""

    versions: Versions
    memory_mib: int | None
    vcpus: float | None


class PrestartedDiedError(EngineError):
    """A prestarted machine ended while something was restored into it: the checkpoint is fine, try again."""


@dataclass(eq=False, repr=False)
class PrestartedMachines:
    """Keeps one prestarted machine, in the shape of the last expected sandbox.

    Args:
        pins: Where network namespaces are pinned.
        engine: Returns the engine of a machine or checkpoint.
        kept: Whether to keep a prestarted machine at all.
        memory: Reports the host's memory.
    """

    paths: Paths
    pins: Path
    _: KW_ONLY
    engine: Callable[[Versions], Engine]
    programs: Programs
    tasks: Tasks
    kept: bool
    memory: Callable[[], HostMemory]
    _ids: set[str] = field(default_factory=set, init=False)
    _prestarted: tuple[_Shape, PrestartedMachine] | None = field(default=None, init=False)
    _wanted: _Shape | None = field(default=None, init=False)
    _expected: _Shape | None = field(default=None, init=False)
    _making: bool = field(default=False, init=False)
    _rest_s: float = field(default=_REST_S, init=False)
    _rests_until_s: float = field(default=0.0, init=False)

    def sweep(self) -> None:
        """Remove the leftovers of ended machines."""
        for place in self.paths.roots.iterdir() if self.paths.roots.is_dir() else ():
            remove_empty_place(place)

    def ids(self) -> set[str]:
        """The ids of the prestarted machine and of a machine in the making."""
        return set(self._ids)

    def expect(self, plan: SandboxPlan) -> None:
        """Start to make a prestarted machine that fits this plan, which may be restored soon."""
        if not self.kept or not self._fits(plan) or time.monotonic() < self._rests_until_s:
            return
        shape, before = _shape(plan), self._expected
        self._expected = shape
        # Replace an existing machine only when the same other shape is wanted twice in a row. If sandboxes of
        # several sizes take turns, a new machine for each would cost more than it saves.
        if self._wanted is None or shape == before or not (self._making or self._prestarted):
            self._wanted = shape
        if not self._making and not (self._prestarted and self._prestarted[0] == self._wanted):
            self._making = True
            self.tasks.watch(self._make_soon())

    def take(self, plan: SandboxPlan) -> PrestartedMachine | None:
        """Hand over the prestarted machine for a plan with a checkpoint, or None if none fits.

        The caller uses it or ends it.
        """
        if self._prestarted is None or not self._fits(plan) or self._prestarted[0] != _shape(plan):
            return None
        (_, prestarted), self._prestarted = self._prestarted, None
        self._ids.discard(prestarted.machine_id)
        return prestarted

    def _fits(self, plan: SandboxPlan) -> bool:
        # The one that is kept ready runs in the current engine.
        is_current = plan.versions.engine == self.programs.current.engine
        return is_current and not plan.engine_disk and not plan.volumes

    async def aclose(self) -> None:
        """End the prestarted machine, and make no other."""
        self.kept = False
        await self.drain()

    async def _make_soon(self) -> None:
        try:
            await asyncio.sleep(_REFILL_PAUSE_S)
            while self.kept and (shape := self._wanted) and self.memory().spare_bytes >= 0:
                if self._prestarted is not None and self._prestarted[0] == shape:
                    return
                await self.drain()
                prestarted = await self._make(shape)
                self._rest_s = _REST_S
                if self.kept:
                    self._prestarted = (shape, prestarted)
                else:
                    await to_the_end(self._end(prestarted))
        except UnsupportedError as error:
            _log.warning("no machine is kept ready for wakes and forks: %s", error)
            self.kept = False
        except (AtollError, OSError) as error:
            _log.warning("no machine is kept ready for %g s: %s", self._rest_s, error)
            self._rests_until_s = time.monotonic() + self._rest_s
            self._rest_s = min(2 * self._rest_s, _REST_MOST_S)
        finally:
            self._making = False

    async def _make(self, shape: _Shape) -> PrestartedMachine:
        machine_id = new_id()
        self._ids.add(machine_id)
        state_dir = self.paths.machines / machine_id
        pin = self.pins / f"{machine_id}.inner"
        plan = PrestartPlan(
            machine_id=machine_id,
            state_dir=state_dir,
            place=self.paths.roots / machine_id,
            netns=pin,
            argv=AGENT_ARGV,
            binds=agent_binds(self.programs, shape.versions),
            limits=Limits(memory_mib=shape.memory_mib, vcpus=shape.vcpus),
        )
        prestarted: PrestartedMachine | None = None
        try:
            await to_the_end(asyncio.to_thread(self._prepare, state_dir))
            try:
                await to_the_end(asyncio.to_thread(new_netns, pin))
                engine = self.engine(shape.versions)
                if not isinstance(engine, Prestarting):
                    raise UnsupportedError(f"the engine {engine.name!r} keeps no prestarted machines")
                prestarted = await engine.prestart(plan)
            finally:
                # Its processes keep the namespace.
                await to_the_end(asyncio.to_thread(unpin, pin))
        except BaseException:
            # If the prestarted machine exists by now, this call was cancelled just then.
            await to_the_end(self._clear(machine_id) if prestarted is None else self._end(prestarted))
            raise
        return prestarted

    def _prepare(self, state_dir: Path) -> None:
        Mounts.share(self.paths.roots)
        state_dir.mkdir(mode=0o700, parents=True)
        # It belongs to no sandbox yet: see ``RunningMachines.strays``.
        (state_dir / _CONSOLE).symlink_to(os.devnull)

    async def drain(self) -> None:
        """End the prestarted machine; another is made when a restore is expected again."""
        if self._prestarted is not None:
            (_, prestarted), self._prestarted = self._prestarted, None
            await to_the_end(self._end(prestarted))

    async def _end(self, prestarted: PrestartedMachine) -> None:
        try:
            await prestarted.kill()
        except (AtollError, OSError) as error:
            _log.error("the prestarted machine %s does not end: %s", prestarted.machine_id, error)
            self._ids.discard(prestarted.machine_id)  # `gc` removes the rest of it
            return
        await self._clear(prestarted.machine_id)

    async def _clear(self, machine_id: str) -> None:
        await asyncio.to_thread(shutil.rmtree, self.paths.machines / machine_id, ignore_errors=True)
        self._ids.discard(machine_id)


def agent_binds(programs: Programs, versions: Versions) -> tuple[Bind, ...]:
    """The files bound into the root of every machine: the guest agent."""
    return (Bind(source=str(programs.agent_dir(versions.agent)), target="/.atoll"),)


def _shape(plan: SandboxPlan) -> _Shape:
    return _Shape(plan.versions, plan.limits.memory_mib, plan.limits.vcpus)
