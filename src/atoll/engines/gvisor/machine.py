"""A guest in gVisor: two processes of the host, a control socket and sometimes a cgroup."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from atoll.engines.base import Machine, MachineStats
from atoll.engines.gvisor.checkpoint_files import NAMES, CheckpointFiles, give_back_rest, open_new, reserve
from atoll.engines.gvisor.disk_budget import GvisorDiskBudget
from atoll.engines.gvisor.earlier_pages import EarlierPages, take_back
from atoll.engines.gvisor.files import Files
from atoll.engines.gvisor.launch import is_full
from atoll.engines.gvisor.limiting import limit_guest
from atoll.engines.gvisor.machine_paths import MachinePaths
from atoll.engines.gvisor.pausing import PausingControl
from atoll.engines.gvisor.processes import (
    HostProcess,
    end_processes,
    end_processes_of,
    kill_descendants,
)
from atoll.engines.gvisor.record import record_of
from atoll.engines.gvisor.usage import (
    Usage,
    fits_twice,
    guest_memory_bytes,
    open_guest_memory,
    own_disk_bytes,
    usage_of,
)
from atoll.engines.gvisor.volume_budgets import GvisorVolumeBudgets
from atoll.engines.gvisor.waits import CHECKPOINT_S, SOON_S
from atoll.errors import EngineError, NoSpaceError, UnsupportedError
from atoll.host import Cgroup, Mounts, free_bytes, read_memory, to_the_end
from atoll.types import Limits

SPARE_BYTES = 16 << 20


class HostParts(NamedTuple):
    """The host's resources for a machine. A process is None if it has ended."""

    sentry: HostProcess | None
    gofer: HostProcess | None
    cgroup: Cgroup | None
    limits: Limits


class GvisorMachine(GvisorDiskBudget, GvisorVolumeBudgets, Machine):
    """One guest in gVisor; see ``Machine``.

    Args:
        place: The mount of its root for it alone, if it was a prestarted machine.
        earlier_pages: See ``MachinePlan``.
    """

    def __init__(
        self,
        machine_id: str,
        state_dir: Path,
        parts: HostParts,
        place: Path | None = None,
        earlier_pages: Path | None = None,
    ) -> None:
        self.machine_id = machine_id
        self.place = place
        self.earlier = EarlierPages(earlier_pages)
        self._state_dir = state_dir
        self._paths = MachinePaths(state_dir)
        self._sentry, self._limits = parts.sentry, parts.limits
        self._control = PausingControl(self._paths.control_socket(machine_id), parts.cgroup)
        self._late = False
        self._reserved: Path | None = None
        self._refers: Path | None = None
        self._killing = asyncio.Lock()
        self._killed = False
        self.cgroup = parts.cgroup
        self.files = Files(self._control, parts.gofer)

    async def pause(self, *, within_s: float | None = None) -> None:
        """See ``Machine.pause``."""
        await self._control.pause(within_s=within_s)

    async def resume(self) -> None:
        """See ``Machine.resume``."""
        await self._control.resume()

    async def checkpoint(self, into: Path, *, durable: bool = False) -> None:
        """See ``Machine.checkpoint``."""
        self._late = False
        await to_the_end(self._checkpoint(into, durable=durable))

    async def checkpoint_late(self, into: Path) -> None:
        """See ``LatePages.checkpoint_late``."""
        self._late = await asyncio.to_thread(self._may_be_copied)
        await to_the_end(self._checkpoint(into, durable=False))

    async def prepare(
        self, into: Path | None = None, *, pages: Path | None = None, read: bool = False
    ) -> None:
        """See ``LatePages.prepare``."""
        # A pause would otherwise wait for the pages of a checkpoint that is no longer needed.
        with contextlib.suppress(EngineError):
            await self._control.call("containerManager.WaitPages", timeout_s=CHECKPOINT_S)
        if read or self.earlier.directory is None:
            # Memory that is still in the file of a restore counts as memory too.
            await self._control.call("containerManager.ReadPages", timeout_s=CHECKPOINT_S)
        if into is not None and pages is not None:
            used = self.memory_bytes() or 0
            await asyncio.to_thread(reserve, pages / NAMES[-1], used + used // 8 + SPARE_BYTES)
            (into / NAMES[-1]).symlink_to(pages / NAMES[-1])
            return
        if into is None or not await asyncio.to_thread(self._may_be_copied):
            return
        with contextlib.ExitStack() as stack:
            fds = [open_new(into / NAMES[-1])]
            stack.callback(os.close, fds[0])
            for path in await asyncio.to_thread(self.earlier.offer, into):
                fds.append(os.open(path, os.O_RDONLY | os.O_CLOEXEC))
                stack.callback(os.close, fds[-1])
            with _telling_of_a_full_disk(into):
                await self._control.call("containerManager.SavePages", {}, fds=fds, timeout_s=CHECKPOINT_S)

    async def written(self, *, restorable: bool = False) -> bool:
        """See ``LatePages.written``."""
        # A reader of a growing file must know its final length.
        if restorable and self._late and self._reserved is not None:
            await self._wait("containerManager.WaitMetadata")
            return False
        if self._late:  # otherwise the sentry would report an earlier late checkpoint
            await self._wait("containerManager.WaitPages")
            await self._refer()
        reserved, self._reserved = self._reserved, None
        if reserved is not None:
            await asyncio.to_thread(give_back_rest, reserved)
        return True

    async def _wait(self, method: str) -> None:
        with _telling_of_a_full_disk(self._state_dir):
            await self._control.call(method, timeout_s=CHECKPOINT_S)

    async def _refer(self) -> None:
        """Drop unneeded files of the last checkpoint, and have the next one refer to it."""
        into, self._refers = self._refers, None
        if into is None:
            return
        used: list[int] = await self._control.call("containerManager.UsedBases") or []

        def settle() -> None:
            take_back(into, used)
            self.earlier.keep(into)

        # Otherwise the directory could come back after the machine's end.
        await to_the_end(asyncio.to_thread(settle))

    def _may_be_copied(self) -> bool:
        """Whether a second copy of its memory fits: pages that the guest writes meanwhile are copied."""
        used = self.memory_bytes()
        if used is None:
            return False
        return fits_twice(used, _memory_bytes(self._limits), read_memory().available_bytes)

    async def _checkpoint(self, into: Path, *, durable: bool) -> None:
        self._refers = None
        if durable:
            await self._assert_room(into)
        has_pages = await asyncio.to_thread((into / NAMES[-1]).exists)
        earlier = [] if has_pages else await asyncio.to_thread(self.earlier.offer, into)
        with CheckpointFiles(into, flushed=durable, earlier=earlier) as files:
            self._reserved = into / NAMES[-1] if files.reserved else None
            late = "growing" if files.reserved else "late"
            pages = "since" if files.prepared else late if self._late else "now"
            metadata = {"compression": "none", "pages": pages}
            if self.earlier.directory is not None and not files.reserved:
                metadata["refers"] = "true"
                self._refers = into
            argument = {
                "metadata": metadata,
                "have_pages_file": True,
                "Resume": True,
                "app_mf_exclude_committed_zero_pages": True,
            }
            try:
                with _telling_of_a_full_disk(into):
                    await self._control.call(
                        "containerManager.Checkpoint",
                        argument,
                        fds=files.fds,
                        timeout_s=CHECKPOINT_S,
                    )
                if not self._late or files.prepared:
                    await self._refer()
                if durable:
                    await asyncio.to_thread(files.sync)
            except BaseException:
                self._refers = None
                # In another thread, because everything else waits for this one.
                await to_the_end(asyncio.to_thread(files.end_flusher))
                raise

    async def _assert_room(self, into: Path) -> None:
        """Fail before the disk is filled if the checkpoint cannot fit.

        A suspend often happens when space is short.
        """
        free, most = free_bytes(into), _memory_bytes(self._limits)
        if most is not None and most + SPARE_BYTES <= free:
            return
        usage = await self._control.call("Usage.Collect", {"Full": False})
        needed = int(usage["Total"]) + SPARE_BYTES
        if needed > free:
            raise NoSpaceError(
                f"the memory of {self.machine_id} may take {needed >> 20} MiB, but the disk has only "
                f"{free >> 20} MiB free",
                hint=f"free some space on the disk of {into}",
            )

    async def stats(self) -> MachineStats:
        """See ``Machine.stats``."""
        usage = await asyncio.to_thread(self._usage)
        return MachineStats(
            memory_bytes=usage.memory_bytes if usage else None,
            memory_limit_bytes=_memory_bytes(self._limits),
            cpu_s=usage.cpu_s if usage else None,
            disk_bytes=await asyncio.to_thread(self._disk_bytes),
        )

    def _disk_bytes(self) -> int | None:
        return own_disk_bytes(self._sentry.pid) if self._sentry else None

    def _usage(self) -> Usage | None:
        cgroup = self.cgroup
        if cgroup is None:
            usage = usage_of([process.pid for process in self._processes()])
            # At any moment some of the guest's memory may be mapped by no process.
            return usage._replace(memory_bytes=max(usage.memory_bytes, self.memory_bytes() or 0))
        try:
            return Usage(memory_bytes=cgroup.memory_bytes(), cpu_s=cgroup.cpu_s())
        except OSError:  # the cgroup was removed after the machine's end
            return None

    def _processes(self) -> list[HostProcess]:
        return [process for process in (self._sentry, self.files.gofer) if process]

    async def limit(self, limits: Limits, *, keep_free_percent: int = 0) -> None:
        """See ``AdjustableLimits.limit``."""
        cgroup, old = self.cgroup, self._limits
        if cgroup is None and limits.vcpus != old.vcpus:
            raise UnsupportedError(
                "the number of processors cannot change while it runs, because it has no cgroup",
                hint="suspend it first",
            )
        await limit_guest(self._control, limits, keep_free_percent)
        if cgroup is not None:
            try:
                await asyncio.to_thread(cgroup.limit, limits)
            except OSError as error:
                raise UnsupportedError(
                    f"the kernel refuses these limits for {self.machine_id}: {error}",
                    hint="it may use more memory now than the new limit",
                ) from None
        self._limits = limits

    def memory_bytes(self) -> int | None:
        """See ``MemoryReadings.memory_bytes``."""
        return None if self._sentry is None else guest_memory_bytes(self._sentry.pid)

    def hit_memory_limit(self) -> bool:
        """See ``MemoryReadings.hit_memory_limit``."""
        return self.cgroup is not None and self.cgroup.oom_kills() > 0

    async def wait(self) -> None:
        """See ``Machine.wait``."""
        # The machine needs both processes: without the gofer no file can be opened.
        while self._sentry is not None and (gofer := self.files.gofer) is not None:
            ends = [asyncio.ensure_future(process.wait()) for process in self._processes()]
            try:
                await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for end in ends:
                    end.cancel()
            if await self.files.are_lost(gofer):
                return

    async def kill(self) -> None:
        """See ``Machine.kill``."""
        await to_the_end(self._kill())

    async def _kill(self) -> None:
        async with self._killing:
            if self._killed:
                return
            memory = open_guest_memory(self._sentry.pid) if self._sentry else None
            try:
                await self._end_processes()
            finally:
                if memory is not None:
                    # The kernel takes a while to give back a gigabyte, and the sentry's end need not wait for
                    # that.
                    asyncio.get_running_loop().run_in_executor(None, os.close, memory)
            if self.cgroup is not None:
                await asyncio.to_thread(self.cgroup.remove)
            if self.place is not None:
                await asyncio.to_thread(Mounts.clear, self.place)
            self._control.path.unlink(missing_ok=True)
            self._killed = True
            self.files.close()

    async def _end_processes(self) -> None:
        """End the machine's processes on the host without asking its kernel, however busy that is."""
        whole = self._sentry is not None and self.files.gofer is not None
        for process in self._processes():
            process.kill()  # the sentry first, so that nothing new starts
        # If guest programs ran on, they would take the processors that the sentry needs to end.
        if self.cgroup is not None:
            await asyncio.to_thread(self.cgroup.kill)
        elif self._sentry is not None and not await self._sentry.ends_within(SOON_S):
            await asyncio.to_thread(kill_descendants, self._sentry.pid)
        await end_processes(self._processes())
        if not whole:
            await end_processes_of(self._paths.bundle)

    def record(self) -> bytes:
        """See ``Machine.record``."""
        sentry, gofer = self._sentry, self.files.gofer
        if sentry is None or gofer is None:
            raise EngineError(f"the machine {self.machine_id} has ended")
        return record_of(
            self.machine_id,
            self._state_dir,
            sentry,
            gofer,
            self._limits,
            self.place,
            self.earlier.directory,
        )


@contextlib.contextmanager
def _telling_of_a_full_disk(directory: Path) -> Iterator[None]:
    try:
        yield
    except EngineError as error:
        if is_full(error.message):
            raise NoSpaceError(error.message, hint=f"free some space on the disk of {directory}") from None
        raise


def _memory_bytes(limits: Limits) -> int | None:
    return None if limits.memory_mib is None else limits.memory_mib << 20
