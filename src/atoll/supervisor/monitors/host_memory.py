"""Keeps the host's memory from running out: sandboxes give way first."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from atoll.engines import memory_bytes
from atoll.errors import AtollError
from atoll.supervisor.monitors.giving_way import GivingWay, Victim, is_critical

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.memory_admission import MemoryAdmission
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.monitors.idle_sandboxes import IdleSandboxes
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.types import HostMemory

_LOOK_S, _LEAST_S = 1.0, 0.05
# All guests of a host together take memory no faster than this.
_FASTEST_BYTES_S = 4 << 30
# Below these amounts of spare memory, as parts of the reserve, look at each guest, and suspend idle ones.
_NEAR, _TIGHT = 1.0, 0.25
# Reading the memory of many guests takes a while, at most this share of the time.
_READING_SHARE = 0.1
_TRAFFIC_S = 10.0
_IDLE_AGAIN_S = 1.0
# On a busy host an agent may answer that late.
_AGENT_S = 3.0
_MIB = 1 << 20
_log = logging.getLogger(__name__)


def pause_s(memory: HostMemory) -> float:
    """The shortest time in which guests can use up the spare memory."""
    return min(_LOOK_S, max(_LEAST_S, memory.spare_bytes / _FASTEST_BYTES_S))


class HostMemoryMonitor:
    """Looks at the host's memory, often when little is left, and makes sandboxes give way.

    Idle ones are put to sleep first. Then the biggest program of the sandbox that grows fastest is killed, then
    a whole sandbox.

    Args:
        look: Returns the host's memory.
        admission: Knows the needs of machines that are about to start.
        inventory: The sandboxes.
        idle: The idle sandboxes.
        agents: Have guests kill a program.
        spares: End the machines that only wait to be used.
        bound: Has the kernel bound the memory of all sandboxes together.
        tasks: Owner of the watching and of the work that it starts.
        tell: Writes a line into a sandbox's log.
    """

    def __init__(
        self,
        *,
        look: Callable[[], HostMemory],
        admission: MemoryAdmission,
        inventory: Inventory,
        idle: IdleSandboxes,
        agents: Agents,
        spares: Sequence[Callable[[], Awaitable[None]]],
        bound: Callable[[int], None],
        tasks: Tasks,
        tell: Callable[[str, str], None],
    ) -> None:
        self._look = look
        self._admission = admission
        self._inventory = inventory
        self._idle = idle
        self._agents = agents
        self._spares = spares
        self._bound = bound
        self._tasks = tasks
        self._tell = tell
        self._way = GivingWay()
        # This has its own thread: all others may wait for a disk.
        self._reader = ThreadPoolExecutor(1, "host-memory")
        self._read_again_s = 0.0
        self._sleeping: asyncio.Task[None] | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_short = False

    def start(self) -> None:
        """Start to watch, unless nothing is to stay free."""
        memory = self._look()
        if memory.kept_free_bytes > 0:
            self._bound(memory.total_bytes - memory.kept_free_bytes)
            self._tasks.watch(self._watching())
            self._tasks.watch(self._noting_traffic())

    async def _noting_traffic(self) -> None:
        while True:
            await self._idle.note_traffic()
            await asyncio.sleep(_TRAFFIC_S)

    async def _watching(self) -> None:
        while True:
            wait_s = _LOOK_S
            try:
                wait_s = await self.look()
            except (AtollError, OSError, ValueError) as error:
                _log.warning("cannot look after the host's memory: %s", error)
            await asyncio.sleep(wait_s)

    async def look(self) -> float:
        """Look once, and act if little is left. Returns the seconds until the next look."""
        memory = self._look()
        if memory.spare_bytes - self._admission.wanted_bytes < memory.kept_free_bytes * _TIGHT:
            self._put_idle_to_sleep()
        if memory.spare_bytes >= memory.kept_free_bytes * _NEAR:
            self._is_short = False
            return pause_s(memory)
        await self._read()
        if memory.spare_bytes < 0:
            self._note_shortage(memory)
        asking = self._asking is not None and not self._asking.done()
        if not asking or is_critical(memory):
            victim = self._way.next(memory, time.monotonic())
            if victim is not None:
                self._kill(victim)
        return pause_s(memory)

    async def _read(self) -> None:
        began_s = time.monotonic()
        if began_s < self._read_again_s:
            return
        machines = [
            (sandbox.sandbox_id, running.machine)
            for sandbox in self._inventory.sandboxes()
            if (running := sandbox.running) is not None and running.reason is None
        ]

        def sizes() -> dict[str, int]:
            return {sandbox_id: memory_bytes(machine) or 0 for sandbox_id, machine in machines}

        found = await asyncio.get_running_loop().run_in_executor(self._reader, sizes)
        now_s = time.monotonic()
        self._way.read(found, now_s)
        self._read_again_s = now_s + (now_s - began_s) / _READING_SHARE - (now_s - began_s)

    def _note_shortage(self, memory: HostMemory) -> None:
        if self._is_short:
            return
        self._is_short = True
        _log.warning(
            "the host is short of memory: %s MiB are available, %s MiB are to stay free",
            memory.available_bytes // _MIB,
            memory.kept_free_bytes // _MIB,
        )
        for end in self._spares:
            self._tasks.spawn(_awaited(end))

    def _put_idle_to_sleep(self) -> None:
        if self._sleeping is None or self._sleeping.done():
            self._sleeping = self._tasks.watch(self._sleep_one_by_one())

    async def _sleep_one_by_one(self) -> None:
        """Put idle sandboxes to sleep until enough memory is free, or too little to write theirs to the disk."""
        for sandbox in self._idle.found(paused=True):
            memory = self._look()
            left_bytes = memory.spare_bytes - self._admission.wanted_bytes
            if left_bytes >= memory.kept_free_bytes * _TIGHT or is_critical(memory):
                break
            await self._idle.put_to_sleep(sandbox, "the host's memory is nearly used")
        await asyncio.sleep(_IDLE_AGAIN_S)

    def _kill(self, victim: Victim) -> None:
        """Begin to kill. The watch on other growing sandboxes goes on meanwhile."""
        sandbox = self._inventory.sandbox(victim.sandbox_id)
        running = sandbox.running
        if running is None or running.leaving:
            return
        held_bytes = memory_bytes(running.machine) or 0
        if self._way.has_shrunk(victim.sandbox_id, held_bytes):
            # Its biggest program has ended since, perhaps by the last step.
            self._read_again_s = 0.0
            self._way.in_vain()
            return
        if victim.how == "program":
            self._asking = self._tasks.spawn(self._kill_program(sandbox, running))
            return
        running.reason = f"the host ran short of memory, of which it held {held_bytes // _MIB:,} MiB"
        self._tell(sandbox.sandbox_id, f"ended: {running.reason}")
        _log.warning("sandbox %s is ended: %s", sandbox.sandbox_id, running.reason)
        self._tasks.spawn(running.machine.kill())

    async def _kill_program(self, sandbox: Sandbox, running: RunningMachine) -> None:
        if sandbox.row.state == "paused":
            self._way.in_vain()
            return
        try:
            freed = await running.alive(self._agents.free_memory(running.link, _AGENT_S), sandbox.sandbox_id)
        except AtollError as error:
            _log.warning("sandbox %s does not free memory: %s", sandbox.sandbox_id, error)
            self._way.in_vain()
            return
        if not freed.killed:
            self._way.in_vain()
            return
        self._way.worked(time.monotonic())
        _log.warning(
            "a program of sandbox %s was killed for the host's memory: it held %s MiB",
            sandbox.sandbox_id,
            freed.held_bytes // _MIB,
        )


async def _awaited(work: Callable[[], Awaitable[None]]) -> None:
    await work()
