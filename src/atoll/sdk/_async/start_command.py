"""The start command of a template: it starts when the template is built, and runs in all of its sandboxes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from atoll.errors import DeadlineError, ExecTimeoutError, TemplateBuildError
from atoll.sdk._async.process import AsyncProcess
from atoll.sdk._async.sandbox import AsyncSandbox
from atoll.sdk._io_async import in_thread
from atoll.sdk._steps import failed
from atoll.types import ExecResult

_READY_S = 600.0
_TRY_READY_S = 30.0
_BETWEEN_S = 0.3
_SETTLE_S = 3.0
_OUTPUT_BYTES = 16384
_TELL_S = 5.0
_SHOWN = 200


async def started_command(
    sandbox: AsyncSandbox,
    start: str | None,
    ready: str | None,
    *,
    cwd: str,
    end_at: float,
    say: Callable[[str], Awaitable[None]],
    tell_s: float = _TELL_S,
) -> None:
    """Start a program and return when it is ready.

    It is ready when ``ready`` exits with 0, or a moment later if there is no ``ready``.

    Args:
        sandbox: The sandbox to start it in.
        start: A shell line that keeps running, or "".
        ready: A shell line that is tried until it succeeds, or "".
        cwd: The directory that both run in.
        end_at: When to give up, on the monotonic clock; after ten minutes at most.
        say: Called with progress messages.
        tell_s: Seconds between two messages while it is not ready.

    Raises:
        TemplateBuildError: The program failed, or was not ready in time.
    """
    process = await sandbox.processes.start(start, cwd=cwd) if start else None
    if start:
        await say(f"started {start}")
    began = told_at = time.monotonic()
    end_at = min(end_at, began + (_READY_S if ready else _SETTLE_S))
    while True:
        last = await _not_ready(sandbox, ready, cwd) if ready else ""
        if last is None:
            await say("the template's program is ready")
            return
        now = time.monotonic()
        if now >= end_at:
            break
        if ready and now - told_at >= tell_s:
            told_at = now
            await say(f"not ready after {now - began:.0f} s{_said(last)}")
        if process is None or await _has_ended(process):
            process = None
            await in_thread(time.sleep, _BETWEEN_S)
    if ready:
        raise TemplateBuildError(
            f"the ready command did not exit with 0 in time: {ready}{_said(last)}",
            hint="build it without one, and try that line in a sandbox of the template",
        )


async def _has_ended(process: AsyncProcess) -> bool:
    """Wait a moment for the program's end. The end must be a successful one."""
    try:
        ended = await process.wait(timeout_s=_BETWEEN_S, max_output_bytes=_OUTPUT_BYTES)
    except DeadlineError:
        return False
    if ended.exit_code:
        raise failed("the start command", ended)
    return True


async def _not_ready(sandbox: AsyncSandbox, command: str, cwd: str) -> str | None:
    """Try the ready command. Return None if it exits with 0, else the last line that it has written."""
    try:
        result = await sandbox.run(command, cwd=cwd, timeout_s=_TRY_READY_S)
    except ExecTimeoutError as error:
        return _last_line(error.result) or f"it ran for {_TRY_READY_S:g} s and was killed"
    if result.exit_code == 0:
        return None
    return _last_line(result) or f"it exits with {result.exit_code} and writes nothing"


def _last_line(result: ExecResult) -> str:
    lines = (result.stderr.strip() or result.stdout.strip()).splitlines()
    return lines[-1].strip()[:_SHOWN] if lines else ""


def _said(last: str) -> str:
    return f"; the last of its output: {last}" if last else ""
