"""Starting the ``runsc`` program."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from atoll.errors import EngineError
from atoll.host import Program, start_program

START_TIMEOUT_S = 120.0

# Waits for a line, so that nothing runs before it is in its cgroup, and then becomes runsc.
_GATE = 'read -r _ && exec "$@" </dev/null'


class JoinedCgroup(Protocol):
    """What a launch needs of a cgroup."""

    def add(self, pid: int) -> None:
        """Move a process into it; what that process starts later is in it too."""


async def launch(
    runsc: Path,
    arguments: Sequence[str],
    *,
    state_dir: Path,
    pass_fds: Sequence[int],
    cgroup: JoinedCgroup | None,
) -> None:
    """Run ``runsc`` to its end; the machine that it starts lives on, in a session of its own.

    The guest's standard output and error are appended to ``state_dir/console.log``. Cancelling kills ``runsc``, not
    what it has started by then.

    Raises:
        EngineError: It failed; the message has its own words.
    """
    program = _start([str(runsc), *arguments], state_dir / "console.log", pass_fds, cgroup)
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
        raise EngineError(f"runsc ended with {code}: {last_words(state_dir / 'runsc.log')}")


def _start(
    argv: Sequence[str], console: Path, pass_fds: Sequence[int], cgroup: JoinedCgroup | None
) -> Program:
    log = os.open(console, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    gate, opener = os.pipe()
    try:
        program = start_program(
            ["/bin/sh", "-c", _GATE, "sh", *argv],
            stdin=gate,
            stdout=log,
            stderr=log,
            pass_fds=pass_fds,
            env={},
        )
        if cgroup is not None:
            cgroup.add(program.pid)
        os.write(opener, b"\n")
        return program
    finally:
        for fd in (log, gate, opener):
            os.close(fd)


def last_words(log: Path) -> str:
    """The newest error in a log that runsc wrote as JSON lines."""
    try:
        lines = log.read_bytes().splitlines()
    except FileNotFoundError:
        return "it left no message"
    for line in reversed(lines):
        try:
            entry = msgspec.json.decode(line)
        except msgspec.DecodeError:
            continue
        if isinstance(entry, dict) and entry.get("level") in ("error", "fatal"):
            return str(entry.get("msg"))
    return "it left no message"
