"""The forks that an evaluation runs in: made of its snapshot, and found again by a label."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TypeAlias

import anyio

from atoll.errors import AtollError, InUseError, InvalidSpecError, NotFoundError
from atoll.evals.outcome import tail_of
from atoll.sdk import AsyncSandbox, AsyncSnapshots, Sandbox
from atoll.types import Lifecycle, Snapshot, SnapshotInfo, Wait

State: TypeAlias = str | SnapshotInfo | Sandbox | AsyncSandbox
LABEL = "evals"
_ASK_S = 10.0
_KILL_S = 60.0
_LOG_PIECES = 4
_MIB = 1 << 20
# a fork's memory beside the memory that it changes
_FORK_BYTES = 64 * _MIB
_FORKS_PER_PROCESSOR = 4


@dataclass(frozen=True, kw_only=True)
class Start:
    """The state that every run begins from, and whether the evaluation has made the snapshot itself."""

    snapshot_id: str
    start_hash: str
    own: bool


class Forks:
    """Makes and ends the forks of one evaluation.

    Args:
        evaluation: Its id, with which every fork is labelled.
    """

    def __init__(self, evaluation: str) -> None:
        self.evaluation = evaluation
        # more at once would only wait for each other's processors
        self._making = anyio.Semaphore(2 * (os.cpu_count() or 1))

    async def start(self, state: State) -> Start:
        """Return the state to begin from. A sandbox is snapshotted, and goes on.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            InvalidSpecError: It is neither a snapshot nor a sandbox.
        """
        if isinstance(state, (str, SnapshotInfo)):
            found = await self.snapshot(state)
            return Start(
                snapshot_id=found.snapshot_id,
                start_hash=await AsyncSnapshots.digest(found.snapshot_id),
                own=False,
            )
        if not isinstance(state, (Sandbox, AsyncSandbox)):
            raise InvalidSpecError(f"state is {state!r}"[:300], hint="give a snapshot or a sandbox")
        with contextlib.closing(await AsyncSandbox.connect(state.id, wake=False)) as sandbox:
            made = await sandbox.snapshot(f"evals-{self.evaluation}", comment="the start of an evaluation")
        try:
            start_hash = await AsyncSnapshots.digest(made.snapshot_id)
        except BaseException:
            await self.delete(made.snapshot_id)
            raise
        return Start(snapshot_id=made.snapshot_id, start_hash=start_hash, own=True)

    async def snapshot(self, state: str | SnapshotInfo) -> SnapshotInfo:
        """Return the information about a snapshot."""
        return state if isinstance(state, SnapshotInfo) else await AsyncSnapshots.get(state)

    async def capacity(self, snapshot_id: str) -> int:
        """Return how many forks this host can have at once."""
        info = await AsyncSnapshots.get(snapshot_id)
        return forks_at_once(os.cpu_count() or 1, _available_bytes(), info.memory_bytes)

    async def make(self, snapshot_id: str, lease_s: float) -> AsyncSandbox:
        """Make a fork. It dies at the end of its lease, even if this process is gone."""
        async with self._making:
            return await AsyncSandbox.create(
                Snapshot(snapshot_id),
                metadata={LABEL: self.evaluation},
                lifecycle=Lifecycle(ttl_s=lease_s),
                wait=Wait(on_progress=False),
            )

    async def cpu_s(self, fork: AsyncSandbox) -> float | None:
        """Return the processor time of a fork; None if nobody can tell."""
        with anyio.move_on_after(_ASK_S), contextlib.suppress(AtollError):
            return (await fork.stats()).cpu_s
        return None

    async def log(self, fork: AsyncSandbox) -> str:
        """Return the end of a fork's log; empty if nobody can tell."""
        pieces: list[str] = []
        with anyio.move_on_after(_ASK_S), contextlib.suppress(AtollError):
            async for piece in fork.logs():
                pieces = [*pieces[-_LOG_PIECES:], piece]
        return tail_of("".join(pieces))

    async def keep(self, fork: AsyncSandbox) -> bool:
        """Take a fork's lease away and put it to sleep. Returns False if that fails."""
        try:
            await fork.set_lease(None)
            await fork.suspend()
        except AtollError:
            return False
        finally:
            fork.close()
        return True

    async def kill(self, sandbox_id: str) -> None:
        """Kill a fork, also if the caller is cancelled. A missing fork is no error."""
        with anyio.move_on_after(_KILL_S, shield=True):
            with contextlib.suppress(NotFoundError):
                with contextlib.closing(await AsyncSandbox.connect(sandbox_id, wake=False)) as sandbox:
                    await sandbox.kill()

    async def living(self) -> list[str]:
        """Return the ids of all forks of this evaluation, including those of a killed process."""
        return [info.sandbox_id async for info in AsyncSandbox.list(metadata={LABEL: self.evaluation})]

    async def delete(self, snapshot_id: str) -> None:
        """Delete the snapshot, unless something that was made of it still needs it."""
        with anyio.move_on_after(_KILL_S, shield=True), contextlib.suppress(NotFoundError, InUseError):
            await AsyncSnapshots.delete(snapshot_id)


def forks_at_once(processors: int, available_bytes: int | None, state_bytes: int) -> int:
    """Return how many forks a host can have at once, if each may change all of its memory."""
    most = _FORKS_PER_PROCESSOR * processors
    if available_bytes is not None:
        most = min(most, available_bytes // (2 * (state_bytes + _FORK_BYTES)))
    return max(1, most)


def _available_bytes() -> int | None:
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return None
