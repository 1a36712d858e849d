"""Starting the ``runsc`` program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from atoll.engines.gvisor.limiting import on_processors
from atoll.engines.gvisor.places import Places
from atoll.errors import EngineError
from atoll.host import Cgroup, Program, start_program
from atoll.types import Limits

START_TIMEOUT_S = 120.0

# A process with one thread enters a cgroup at once, one with many waits for the kernel; so a shell does it.
_ENTER = 'until [ "$1" = -- ]; do echo 0 >"$1" || exit; shift; done; shift; exec "$@"'


class Bounds(NamedTuple):
    """What the machine may use, and the cgroup that counts it, if there is one."""

    limits: Limits
    cgroup: Cgroup | None


async def launch(argv: Sequence[str], places: Places, pass_fds: Sequence[int], bounds: Bounds) -> None:
    """Run a command of ``runsc`` to its end; the machine that it starts lives on, in a session of its own.

    The guest's standard output and error are appended to ``places.console``. Cancelling kills the command,
    not what it has started by then.

    Raises:
        EngineError: It failed; the message has its own words.
    """
    program = _start(argv, places.console, pass_fds, bounds)
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            code = await program.wait()
    except TimeoutError:
        raise EngineError(
            f"runsc did not finish in {START_TIMEOUT_S:g} s", hint="the host may be overloaded: try again"
        ) from None
    finally:
        await program.kill()
    if code != 0:
        raise EngineError(f"runsc ended with {code}: {last_words(places.log)}")


def _start(argv: Sequence[str], console: Path, pass_fds: Sequence[int], bounds: Bounds) -> Program:
    cgroup = bounds.cgroup
    if cgroup is not None:
        argv = ["/bin/sh", "-c", _ENTER, "sh", *map(str, cgroup.entry_files()), "--", *argv]
    log = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        with on_processors(bounds.limits, argv[-1], cgroup=cgroup is not None):
            return start_program(argv, stdout=log, stderr=log, pass_fds=pass_fds, env={})
    finally:
        os.close(log)


def last_words(log: Path) -> str:
    """The newest error in a log that runsc wrote as JSON lines."""
    try:
        lines = log.read_bytes().splitlines()
    except FileNotFoundError:
        return "it left no message"
    for line in reversed(lines):
        try:
            entry = msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError):
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg"))
    return "it left no message"
