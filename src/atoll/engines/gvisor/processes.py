"""The two host processes of a machine, the sentry and the gofer.

A pidfd holds each, so a reused pid is never hit.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from atoll.engines.gvisor.waits import END_S
from atoll.errors import EngineError
from atoll.host import children_by_parent, open_process, parent_of, start_ticks, wait_pidfd

_PROC = Path("/proc")
# Commands of runsc. The machine's own processes have the commands `boot` and `gofer`.
_STARTS = frozenset((b"run", b"restore", b"create"))
# A child of such a command shows that command line until it executes its own program. It may live as long as
# the guest.
_EXECS_S = 0.1
_STUB = b"exe\n"
_FILTERS = re.compile(rb"^Seccomp_filters:\s*(\d+)$", re.MULTILINE)
_LOOK_S = 0.001
_LOOKS = 20


class HostProcess:
    """A process of this host, held by a descriptor that ``close`` gives back."""

    def __init__(self, pid: int, started_ticks: int, pidfd: int) -> None:
        self.pid = pid
        self.started_ticks = started_ticks
        self._pidfd = pidfd
        self._ended: asyncio.Event | None = None

    @classmethod
    def find(cls, pid: int, started_ticks: int | None = None) -> HostProcess | None:
        """Open the process ``pid``; None if it has ended or started at another tick."""
        ticks = start_ticks(pid) if started_ticks is None else started_ticks
        pidfd = None if ticks is None else open_process(pid, ticks)
        return None if ticks is None or pidfd is None else cls(pid, ticks, pidfd)

    def kill(self) -> None:
        """Send SIGKILL; does nothing if it has ended."""
        if self._pidfd >= 0:
            with contextlib.suppress(ProcessLookupError):  # it ended by itself just now
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    @property
    def has_ended(self) -> bool:
        """Whether the process has ended."""
        return self._pidfd < 0 or wait_pidfd(self._pidfd, 0)

    async def ends_within(self, timeout_s: float) -> bool:
        """Whether the process has ended or ends within ``timeout_s``."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait()
        return self.has_ended

    async def wait(self) -> None:
        """Return when the process has ended. Any number of tasks may wait."""
        if self._pidfd < 0:
            return
        if self._ended is None:
            self._ended = asyncio.Event()
            asyncio.get_running_loop().add_reader(self._pidfd, self._note_end)
        await self._ended.wait()

    def _note_end(self) -> None:
        if self._ended is not None and not self._ended.is_set():
            asyncio.get_running_loop().remove_reader(self._pidfd)
            self._ended.set()

    def close(self) -> None:
        """Close the descriptor after the process's end. Tasks that wait are released."""
        if self._pidfd >= 0:
            self._note_end()
            os.close(self._pidfd)
            self._pidfd = -1


def kill_descendants(pid: int) -> None:
    """Send SIGKILL to all descendants of this process. Returns before they have ended."""
    children = children_by_parent()
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        for child in children.get(parent, ()):
            waiting.append(child)
            if process := HostProcess.find(child):
                # The child is held by now, so it is the same process if its parent is the same.
                if parent_of(child) == parent:
                    process.kill()
                process.close()


async def end_processes(processes: Sequence[HostProcess]) -> None:
    """Kill these processes, wait for their end and close them.

    Raises:
        EngineError: A process is stuck in the kernel.
    """
    for process in processes:
        process.kill()
    for process in processes:
        try:
            async with asyncio.timeout(END_S):
                await process.wait()
        except TimeoutError:
            raise EngineError(f"process {process.pid} does not end", hint="see its stack in /proc") from None
        process.close()


def _command_line(entry: Path) -> bytes:
    """A process has no command line for a moment while it starts another program, so look again then."""
    for _ in range(_LOOKS):
        line = (entry / "cmdline").read_bytes()
        if line or not _is_changing(entry):
            return line
        time.sleep(_LOOK_S)
    return b""


def _is_changing(entry: Path) -> bool:
    """Whether the process may be starting another program.

    Kernel threads of the host and zombies have no program. The many processes in which gVisor runs guest
    programs never have a command line. They have the name of a runsc that executes itself once more, but they
    have given up system calls.
    """
    try:
        (entry / "exe").readlink()
        if (entry / "comm").read_bytes() != _STUB:
            return True
        filters = _seccomp_filters(entry)
        return filters is not None and filters == _seccomp_filters(_PROC / "self")
    except OSError:
        return False


def _seccomp_filters(entry: Path) -> int | None:
    """How many a process has; None where the host's kernel does not say it, before Linux 5.9."""
    found = _FILTERS.search((entry / "status").read_bytes())
    return int(found[1]) if found else None


def _pids_of_bundle(bundle: Path) -> Iterator[tuple[int, list[bytes]]]:
    """Yield the pid and the command line of each process that has the bundle on its command line."""
    path = os.fsencode(bundle)
    wanted = {path, b"--bundle=" + path}
    for entry in _PROC.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            arguments = _command_line(entry).split(b"\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if not wanted.isdisjoint(arguments):
            yield int(entry.name), arguments


def pids_of(bundle: Path) -> set[int]:
    """Return the processes that have ``bundle`` on their command line."""
    return {pid for pid, _ in _pids_of_bundle(bundle)}


def _of_bundle(bundle: Path) -> list[HostProcess]:
    return [process for pid, _ in _pids_of_bundle(bundle) if (process := HostProcess.find(pid))]


async def wait_for_start(bundle: Path) -> None:
    """Return when no command that starts a machine of this bundle is running."""
    while pids := await asyncio.to_thread(_starting, bundle):
        for pid in pids:
            if process := HostProcess.find(pid):
                try:
                    await process.ends_within(_EXECS_S)
                finally:
                    process.close()


def _starting(bundle: Path) -> list[int]:
    return [pid for pid, arguments in _pids_of_bundle(bundle) if not _STARTS.isdisjoint(arguments)]


async def end_processes_of(bundle: Path) -> None:
    """Kill every process with ``bundle`` on its command line, and all that these start meanwhile."""
    while found := _of_bundle(bundle):
        await end_processes(found)
