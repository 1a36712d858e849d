"""Lets a machine start only if the host has enough free memory for it. Limits reserve nothing."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.engines import memory_bytes
from atoll.errors import HostMemoryError

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.turns import Turns
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.types import HostMemory

# The memory that a boot takes, before any program runs.
BOOT_BYTES = 64 << 20
_PATIENCE_S = 5.0
_LOOK_S = 0.1
_NAMED = 3
_MIB = 1 << 20


def checkpoint_bytes(checkpoint: Path) -> int:
    """The memory of a machine that continues from this checkpoint, or of a boot if there is no checkpoint."""
    try:
        return max(BOOT_BYTES, sum(entry.stat().st_blocks * 512 for entry in checkpoint.iterdir()))
    except OSError:
        return BOOT_BYTES


@dataclass(kw_only=True, eq=False, repr=False)
class MemoryAdmission:
    """Admits machines that are to start, first come first served.

    It counts the memory in use now, and the needs of the machines that are starting.

    Args:
        look: Returns the host's memory.
        clock: Returns monotonic seconds.
        patience_s: How long a machine waits for its turn.
    """

    look: Callable[[], HostMemory]
    inventory: Inventory
    paths: Paths
    turns: Turns
    clock: Callable[[], float] = time.monotonic
    patience_s: float = _PATIENCE_S
    _starting: list[int] = field(default_factory=list, init=False)
    _waiting: list[int] = field(default_factory=list, init=False)
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _refused_s: float = field(init=False)

    def __post_init__(self) -> None:
        self._refused_s = -self.patience_s

    @property
    def wanted_bytes(self) -> int:
        """The needs of all machines that are starting or wait to start."""
        return sum(self._starting) + sum(self._waiting)

    @contextlib.asynccontextmanager
    async def admitted(self, row: SandboxRow, needed_bytes: int) -> AsyncIterator[None]:
        """Wait until this much may be used, and count it while the machine of a sandbox starts.

        Raises:
            HostMemoryError: There was not enough memory in time.
        """
        fits = self._fits(needed_bytes)
        # Right after one has waited in vain, a long queue must not wait in vain one after the other.
        if self.clock() - self._refused_s < self.patience_s:
            if not fits:
                raise await asyncio.to_thread(self._refusal, row, needed_bytes)
        elif not fits or self._turn.locked():
            await self._wait(row, needed_bytes)
        self._starting.append(needed_bytes)
        try:
            yield
        finally:
            self._starting.remove(needed_bytes)

    @contextlib.asynccontextmanager
    async def waking(self, row: SandboxRow, *, memory: bool) -> AsyncIterator[None]:
        """Wait for a turn, then do the work of ``admitted`` for a sandbox that wakes.

        Args:
            memory: Whether it wakes from its memory, if it has any; otherwise from its disk alone.

        Raises:
            HostMemoryError: There was not enough memory in time.
        """
        from_memory = memory and row.has_memory
        checkpoint = self.paths.checkpoint(row.sandbox_id)
        needed_bytes = checkpoint_bytes(checkpoint) if from_memory else BOOT_BYTES
        async with self.turns.turn(), self.admitted(row, needed_bytes):
            yield

    def _fits(self, needed_bytes: int) -> bool:
        memory = self.look()
        is_off = memory.kept_free_bytes <= 0
        return is_off or sum(self._starting) + needed_bytes <= memory.spare_bytes

    async def _wait(self, row: SandboxRow, needed_bytes: int) -> None:
        self._waiting.append(needed_bytes)
        try:
            async with asyncio.timeout(self.patience_s), self._turn:
                while not self._fits(needed_bytes):  # noqa: ASYNC110 - the host's memory has no event
                    await asyncio.sleep(_LOOK_S)
        except TimeoutError:
            self._refused_s = self.clock()
            raise await asyncio.to_thread(self._refusal, row, needed_bytes) from None
        finally:
            self._waiting.remove(needed_bytes)

    def _refusal(self, row: SandboxRow, needed_bytes: int) -> HostMemoryError:
        what = f"too little of the host's memory is left: this needs {needed_bytes // _MIB:,} MiB"
        hint = "suspend or kill a sandbox, or try again later"
        # A team hears only about its own sandboxes.
        if row.team is None:
            memory = self.look()
            what += (
                f", {memory.available_bytes // _MIB:,} of {memory.total_bytes // _MIB:,} MiB are available, "
                f"and {memory.kept_free_bytes // _MIB:,} MiB stay free"
            )
            hint += "; ATOLL_HOST_MEMORY_FREE_MIB is what stays free"
        used = self._used(row.team)
        if used:
            named = ", ".join(f"{name} {size // _MIB:,} MiB" for name, size in used[:_NAMED])
            most = " most" if len(used) > _NAMED else ""
            what += (
                f"; {len(used)} sandboxes use {sum(size for _, size in used) // _MIB:,} MiB,{most} {named}"
            )
        return HostMemoryError(what, hint=hint, sandbox_id=row.sandbox_id)

    def _used(self, team: str | None) -> list[tuple[str, int]]:
        """The sandboxes that run, and the memory of each, the biggest first."""
        found = []
        for sandbox in self.inventory.sandboxes():
            row, running = sandbox.row, sandbox.running
            if running is not None and team in (None, row.team):
                found.append((row.called, memory_bytes(running.machine) or 0))
        return sorted(found, key=lambda one: -one[1])
