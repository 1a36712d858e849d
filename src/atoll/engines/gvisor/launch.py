"""Runs the ``runsc`` program."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.engines.gvisor.limiting import on_processors
from atoll.engines.gvisor.machine_paths import MachinePaths
from atoll.errors import EngineError, NoSpaceError
from atoll.host import Cgroup, Program, RunProgramError, free_bytes, start_program
from atoll.types import Limits
from atoll.types.internal import from_json

START_TIMEOUT_S = 120.0
_FULL_BYTES = 1 << 20

# A start has nothing to do in two threads at once. The sentry and the gofer use all processors when they
# serve.
_ENV = {"GOMAXPROCS": "1"}

# If the kernel has to kill something for memory after all, it takes guests first. An ordinary user may only
# raise this value, so nothing inside can lower it.
_OOM_SCORE = "1000"

# A shell enters the cgroup: a process with one thread enters at once, a process with many waits for the
# kernel.
_ENTER = 'until [ "$1" = -- ]; do echo 0 >"$1" || exit; shift; done; shift; exec "$@"'


class Bounds(NamedTuple):
    """The limits of the machine's usage, and the cgroup that counts it, if there is one."""

    limits: Limits
    cgroup: Cgroup | None


async def launch(argv: Sequence[str], paths: MachinePaths, pass_fds: Sequence[int], bounds: Bounds) -> None:
    """Run a command of ``runsc`` to its end. The machine that it starts lives on, in its own session.

    The guest's standard output and error are appended to ``paths.console``. Cancelling kills the command,
    but not what it has already started.

    Raises:
        EngineError: The command failed; the message has runsc's own words.
        NoSpaceError: The disk was full.
    """
    program = _start(argv, paths.console, pass_fds, bounds)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            code = await program.wait()
    except TimeoutError:
        raise EngineError(
            f"runsc did not finish within {START_TIMEOUT_S:g} s", hint="the host may be overloaded: try again"
        ) from None
    finally:
        await program.kill()
    if code != 0:
        raise _failure(code, paths.log)


def _failure(code: int, log: Path) -> EngineError | NoSpaceError:
    message = f"runsc ended with {code}: {last_words(log)}"
    # On a full disk its log has no space either.
    if is_full(message) or free_bytes(log.parent) < _FULL_BYTES:
        return NoSpaceError(message, hint="free some space under the home, or kill a sandbox")
    return EngineError(message)


def _start(argv: Sequence[str], console: Path, pass_fds: Sequence[int], bounds: Bounds) -> Program:
    cgroup = bounds.cgroup
    if cgroup is not None:
        argv = ["/bin/sh", "-c", _ENTER, "sh", *map(str, cgroup.entry_files()), "--", *argv]
    log = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        with on_processors(bounds.limits, argv[-1], cgroup=cgroup is not None):
            program = start_program(argv, stdout=log, stderr=log, pass_fds=pass_fds, env=_ENV)
        # The processes that it starts some milliseconds later inherit this.
        with contextlib.suppress(OSError):  # it has ended already
            Path(f"/proc/{program.pid}/oom_score_adj").write_text(_OOM_SCORE)
        return program
    except RunProgramError as error:
        raise EngineError(str(error), hint="the host may be overloaded: try again") from error
    finally:
        os.close(log)


def is_full(message: str) -> bool:
    """Whether a program of the engine failed because a disk of the host is full."""
    return os.strerror(errno.ENOSPC).lower() in message.lower()


def last_words(log: Path) -> str:
    """Return the newest error in a log that runsc wrote as JSON lines."""
    try:
        lines = log.read_bytes().splitlines()
    except FileNotFoundError:
        return "it left no message"
    for line in reversed(lines):
        try:
            entry = from_json(line)
        except msgspec.DecodeError:
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg"))
    return "it left no message"
