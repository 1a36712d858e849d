"""Runs programs in a sandbox on this process's own standard streams."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING

from atoll.cli.output import show_json
from atoll.cli.program_options import ProgramOptions, code_of, stdin_is_input
from atoll.cli.reattach import reattach_hint
from atoll.errors import AtollError, ExecTimeoutError

if TYPE_CHECKING:
    from atoll import Process, Sandbox


def execute(sandbox: Sandbox, options: ProgramOptions, *, as_json: bool, terminal: bool) -> int:
    """Run a program to its end and return its exit code. Ctrl-C kills only the program.

    Raises:
        ExecTimeoutError: The program ran past its ``--timeout`` and was killed.
    """
    try:
        if terminal:
            from atoll.cli.terminal import session

            return session(sandbox, options)
        if as_json:
            return _to_json(sandbox, options)
        return _streamed(sandbox, options)
    except ExecTimeoutError as error:
        told = ExecTimeoutError(
            f"{options.argv[0]!r} ran past its --timeout of {options.timeout_s or 0:g} seconds and was killed",
            hint="give a longer --timeout, or none",
            sandbox_id=error.sandbox_id,
        )
        told.result = error.result
        raise told from error


def _to_json(sandbox: Sandbox, options: ProgramOptions) -> int:
    with open(0, "rb", buffering=0, closefd=False) if stdin_is_input() else nullcontext() as stdin:
        result = sandbox.exec(options.argv, stdin=stdin, **options.keywords())
    show_json(
        {
            "sandbox_id": sandbox.id,
            "exit_code": result.exit_code,
            "stdout": result.stdout,
            "stderr": result.stderr,
            "truncated": result.truncated,
            "memory_kill": result.memory_kill,
        }
    )
    return result.exit_code


def _streamed(sandbox: Sandbox, options: ProgramOptions) -> int:
    """Copy raw bytes both ways. While nobody reads our output the program blocks, so memory stays small."""
    feeds = stdin_is_input()
    process = sandbox.processes.start(options.argv, stdin=feeds, stream=True, **options.keywords())
    try:
        if feeds:
            threading.Thread(target=_feed, args=(process,), daemon=True).start()
        with reattach_hint(sandbox, process.pid):
            for output in process:
                write(2 if output.stream == "stderr" else 1, output.data)
            return code_of(process.wait())
    except AtollError:
        raise
    except BaseException:
        with suppress(AtollError):  # the program, or its whole sandbox, may have ended meanwhile
            process.kill()
        raise
    finally:
        process.close()


def follow(sandbox: Sandbox, pid: int, *, watch_only: bool) -> int:
    """Show the earlier and new output of a program without a terminal, and return its exit code.

    Ctrl-C leaves it running.

    Args:
        watch_only: Send no input. Otherwise our standard input goes to the program, including its end.
    """
    with sandbox.processes.attach(pid) as process, reattach_hint(sandbox, pid):
        if not watch_only and (stdin_is_input() or os.isatty(0)):
            threading.Thread(target=_feed, args=(process,), daemon=True).start()
        for output in process:
            write(2 if output.stream == "stderr" else 1, output.data)
        return code_of(process.wait())


def _feed(process: Process) -> None:
    """Send all of our standard input. The program need not read it; its exit code tells the result."""
    with suppress(AtollError, OSError):
        with open(0, "rb", buffering=0, closefd=False) as source:
            process.write_stdin(source)
        process.close_stdin()


def write(descriptor: int, data: bytes) -> None:
    """Write all of it to one of our own streams."""
    if sys.platform == "win32":
        # its console takes UTF-8 from this layer alone
        stream = (sys.stderr if descriptor == 2 else sys.stdout).buffer
        stream.write(data)
        stream.flush()
        return
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
