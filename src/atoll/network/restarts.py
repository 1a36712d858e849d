"""Keeps a program of the home running, and finds an earlier supervisor's."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from pathlib import Path
from typing import Protocol

from atoll.errors import AtollError
from atoll.host import LeftProgram, Program, RunProgramError, start_program
from atoll.network.seqpacket import listen_at

_CALM_S = 30.0
_log = logging.getLogger(__name__)


class ListeningProgram(Protocol):
    """A program that listens on a socket of the home, and may outlive the supervisor that started it."""

    @property
    def argv(self) -> Callable[[], tuple[str, ...]]:
        """Returns the program and its arguments."""

    @property
    def socket(self) -> Path:
        """Where it listens."""

    @property
    def started(self) -> Callable[[int, int], None]:
        """Called with the process's pid and start time before it is told anything. An OSError ends it."""

    @property
    def earlier(self) -> Callable[[], LeftProgram | None]:
        """Returns an earlier supervisor's program; None if none runs."""


async def run_earlier_or_new(
    program: ListeningProgram,
    run: Callable[[Program | LeftProgram, bool], Awaitable[None]],
    *,
    stays: Callable[[], bool],
) -> None:
    """Run an earlier supervisor's program, or a new one if there is none.

    Postcondition: it is ended, or left to the next supervisor.

    Args:
        run: Talks to a process until it ends, and is told whether it is new.
        stays: Whether it is left.

    Raises:
        HostError: The earlier supervisor's process cannot be identified.
        OSError: The program cannot run. An earlier supervisor's has ended then.
    """
    earlier = await asyncio.to_thread(program.earlier)
    if earlier is None:
        with listen_at(program.socket) as listener:
            fd = listener.fileno()
            new = start_program((*program.argv(), "-listen", str(fd)), pass_fds=(fd,), env={})
        async with _owned(program, new, stays):
            program.started(new.pid, new.start_ticks)
            await run(new, True)
        return
    try:
        async with _owned(program, earlier, stays):
            await run(earlier, False)
    except (OSError, TimeoutError) as error:
        raise OSError(f"that of an earlier supervisor is ended, with its connections: {error}") from error


@contextlib.asynccontextmanager
async def _owned(
    program: ListeningProgram, process: Program | LeftProgram, stays: Callable[[], bool]
) -> AsyncIterator[None]:
    try:
        yield
    finally:
        if stays():
            process.leave()
        else:
            await process.kill()
            program.socket.unlink(missing_ok=True)


async def keep_running(name: str, run: Callable[[], Awaitable[None]], pauses_s: Sequence[float]) -> None:
    """Run a program again and again, until this is cancelled.

    Args:
        name: Its name in the log.
        run: Runs it once, to its end.
        pauses_s: The pauses before each attempt in a row; the last pause holds for all further attempts.
    """
    failures = 0
    while True:
        await asyncio.sleep(pauses_s[min(failures, len(pauses_s) - 1)])
        began_s = time.monotonic()
        try:
            await run()
        except (AtollError, OSError, RunProgramError, TimeoutError) as error:
            _log.error("%s cannot run: %s", name, error)
        failures = 1 if time.monotonic() - began_s > _CALM_S else failures + 1
