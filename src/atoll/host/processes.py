"""Runs programs of the host."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from atoll.host.pids import open_process, start_ticks

_LONGEST_OUTPUT_BYTES = 64 << 20
_CHUNK_BYTES = 64 << 10

_T = TypeVar("_T")


class RunProgramError(Exception):
    """A program of the host could not be started, or ran too long and was killed.

    Callers turn it into an error of their own room.
    """


class ProgramResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended. ``exit_code`` is the negative signal number if a signal ended it."""

    exit_code: int
    stdout: bytes
    stderr: bytes


class Program:
    """A running program, leader of its own session. Its starter waits for it or kills it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._pidfd = os.pidfd_open(process.pid)
        self.pid = process.pid
        self.start_ticks = start_ticks(process.pid) or 0

    async def wait(self) -> int:
        """Wait for its end and return the exit code: the negative signal number if a signal ended it."""
        if self._process.returncode is None:
            await _readable(self._pidfd)
            self._reap()
        return self._process.returncode

    async def kill(self) -> None:
        """Kill it and every process of its session's group. Idempotent."""
        if self._process.returncode is None:
            # It has not been reaped yet, so the pid is still its own.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            try:
                await to_the_end(_readable(self._pidfd))
            finally:  # reap it even if this task is cancelled meanwhile: nobody else does
                self._reap()

    def leave(self) -> None:
        """Let it run on without this process."""
        os.close(self._pidfd)
        # Popen would warn that nobody waits for it.
        self._process.returncode = 0

    def _reap(self) -> None:
        if self._process.returncode is None:
            self._process.wait()
            os.close(self._pidfd)


def start_program(
    argv: Sequence[str],
    *,
    stdin: int = subprocess.DEVNULL,
    stdout: int = subprocess.DEVNULL,
    stderr: int = subprocess.DEVNULL,
    pass_fds: Sequence[int] = (),
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
) -> Program:
    """Start a program in its own session, with these descriptors as its stdio.

    Args:
        pass_fds: The only further descriptors that it gets, under the same numbers.
        env: Its whole environment; None is this process's.

    Raises:
        RunProgramError: It could not be started.
    """
    try:
        process = subprocess.Popen(
            argv,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            pass_fds=pass_fds,
            env=env,
            cwd=cwd,
            start_new_session=True,
        )
    except OSError as error:
        raise RunProgramError(
            f"the program {argv[0]} could not be started: {error.strerror or error}"
        ) from error
    return Program(process)


class LeftProgram:
    """A running program that an earlier process of the home has started. Its finder waits for it or kills it.

    Args:
        pid: The process.
        started_ticks: When it started, in clock ticks since boot.

    Raises:
        ProcessLookupError: It does not run any more.
    """

    def __init__(self, pid: int, started_ticks: int) -> None:
        pidfd = open_process(pid, started_ticks)
        if pidfd is None:
            raise ProcessLookupError(f"the process {pid} has ended")
        self._pidfd: int | None = pidfd
        self.pid = pid
        self.start_ticks = started_ticks

    async def wait(self) -> None:
        """Wait for its end."""
        if self._pidfd is not None:
            await _readable(self._pidfd)
            self._close()

    async def kill(self) -> None:
        """Kill it, and wait for its end. Idempotent."""
        if self._pidfd is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            try:
                await to_the_end(_readable(self._pidfd))
            finally:
                self._close()

    def leave(self) -> None:
        """Let it run on. Idempotent."""
        self._close()

    def _close(self) -> None:
        if self._pidfd is not None:
            os.close(self._pidfd)
            self._pidfd = None


async def run_program(
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    timeout_s: float | None = 60,
    env: Mapping[str, str] | None = None,
    cwd: str = "/",
    pass_fds: Sequence[int] = (),
    on_stderr: Callable[[bytes], None] | None = None,
) -> ProgramResult:
    """Run a program to its end. A non-zero exit is a result, not an error. Cancelling kills it.

    Processes that it leaves behind do not delay the answer.

    Args:
        stdin: Its standard input; None means an empty file.
        timeout_s: Seconds until it is killed; None waits for ever.
        env: Its whole environment; None is this process's.
        on_stderr: Called with each piece of its stderr as it comes.

    Raises:
        RunProgramError: It could not be started, or ran past ``timeout_s``.
    """
    with contextlib.ExitStack() as stack:
        given, out, err = (stack.enter_context(_MemoryFile(name)) for name in ("stdin", "stdout", "stderr"))
        given.fill(stdin or b"")
        follow = stack.enter_context(_Follower(on_stderr, err)) if on_stderr else None
        program = start_program(
            argv,
            stdin=given.fd,
            stdout=out.fd,
            stderr=follow.writer if follow else err.fd,
            env=env,
            cwd=cwd,
            pass_fds=pass_fds,
        )
        if follow:
            follow.begin()
        try:
            exit_code = await asyncio.wait_for(program.wait(), timeout_s)
        except TimeoutError:
            raise RunProgramError(
                f"the program {argv[0]} ran longer than {timeout_s:g} s and was killed: {err.text()[-500:]!r}"
            ) from None
        finally:
            await program.kill()
        if follow:
            follow.drain()
        return ProgramResult(exit_code=exit_code, stdout=out.text(), stderr=err.text())


class _MemoryFile:
    """A file in memory. A pipe would be kept open by a child that outlives the program."""

    def __init__(self, name: str) -> None:
        self.fd = os.memfd_create(name)

    def __enter__(self) -> _MemoryFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)

    def fill(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self.fd, rest) :]
        os.lseek(self.fd, 0, os.SEEK_SET)

    def text(self) -> bytes:
        size = os.fstat(self.fd).st_size
        start = max(0, size - _LONGEST_OUTPUT_BYTES)
        pieces = []
        while start < size and (piece := os.pread(self.fd, size - start, start)):
            pieces.append(piece)
            start += len(piece)
        return b"".join(pieces)


class _Follower:
    """Passes on a pipe's content while the program writes it."""

    def __init__(self, tell: Callable[[bytes], None], keep: _MemoryFile) -> None:
        self._tell = tell
        self._keep = keep
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)

    def __enter__(self) -> _Follower:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        if self.writer >= 0:
            os.close(self.writer)

    def begin(self) -> None:
        os.close(self.writer)
        self.writer = -1
        asyncio.get_running_loop().add_reader(self._reader, self._read)

    def _read(self) -> bool:
        try:
            data = os.read(self._reader, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if not data:
            asyncio.get_running_loop().remove_reader(self._reader)
            return False
        os.write(self._keep.fd, data)
        self._tell(data)
        return True

    def drain(self) -> None:
        while self._read():
            continue


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    ready: asyncio.Future[None] = loop.create_future()

    def note() -> None:
        if not ready.done():
            ready.set_result(None)

    # A duplicate, so that any number of tasks can wait for one process.
    own = os.dup(fd)
    try:
        loop.add_reader(own, note)
        await ready
    finally:
        loop.remove_reader(own)
        os.close(own)


async def to_the_end(work: Coroutine[Any, Any, _T]) -> _T:
    """Finish ``work`` even if this task is cancelled meanwhile, and only then raise the cancellation.

    A thread continues when its task is cancelled, and would make files again that were removed meanwhile.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
    result = task.result()
    if cancelled is not None:
        raise cancelled
    return result
