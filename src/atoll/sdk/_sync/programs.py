# Made by scripts/unasync.py from sdk/_async/programs.py: do not edit.
"""Runs programs in a sandbox and follows their output."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from typing import Any

from atoll.errors import (
    AgentError,
    AtollError,
    DeadlineError,
    ExecTimeoutError,
    InvalidSpecError,
    NotFoundError,
    SandboxCrashedError,
    StateError,
    UnresponsiveError,
)
from atoll.guest import (
    Frame,
    ProcessEnd,
    Program,
    end_from,
    list_processes,
    processes_from,
    signal_process,
    start_process,
    started_from,
    write_stdin,
)
from atoll.sdk._sync.agent import SILENCE_S, Agent, Frames
from atoll.sdk._sync.http import Upload
from atoll.sdk._bytes import MIB, as_bytes, check_upload, sliced
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._io_sync import Background, call, shielded
from atoll.sdk._output import STREAM_OF, Decoder, Tail
from atoll.sdk._telling import program_line
from atoll.sdk._tracing import ProcessSpan, running
from atoll.types import ExecResult, GuestPath, Output, TerminalSize
from atoll.types.internal import check_kind, check_number, check_text, check_texts, path_text

Command = str | Sequence[str]
Stdin = bytes | str | Upload
OutputCallback = Callable[[str], Any]
MAX_OUTPUT_BYTES = 10 * MIB
# the agent enforces the timeout; the client waits this much longer for its answer
GRACE_S = 5.0
# lets all frames of a short program arrive at once, instead of waking up for the first one beside the program
_PATIENCE_MS = 20
_KILL = 9
_KILL_S = 5.0
# a pipe takes this much without a reader
_SMALL_STDIN_BYTES = 32768
_BRIEF_CHARS = 80


def program_of(
    command: Command,
    *,
    cwd: GuestPath | None,
    env: Mapping[str, str] | None,
    user: str | None,
    timeout_s: float | None,
    stdin: bool,
    pty: TerminalSize | None = None,
    tag: str | None = None,
) -> Program:
    """Return a shell line (str), or a program and its arguments, ready to start.

    Raises:
        InvalidSpecError: There is no program, ``timeout_s`` is not more than 0, or ``env`` or ``cwd`` is
            invalid.
    """
    check_timeout(timeout_s)
    _check_env(env or {})
    line, argv = (command, None) if isinstance(command, str) else (None, _arguments(command))
    if not line and not argv:
        raise InvalidSpecError("the command is empty", hint="give a shell line, or a list of arguments")
    if user is not None:
        check_text("user", user)
    if pty is not None:
        check_kind("size", pty, TerminalSize)
    return Program(
        argv=argv,
        line=line,
        cwd=None if cwd is None else path_text(cwd),
        env=dict(env or {}),
        user=user,
        stdin=stdin,
        pty=pty,
        timeout_ms=0 if timeout_s is None else max(1, round(timeout_s * 1000)),
        tag=tag,
    )


def _arguments(command: Sequence[str]) -> tuple[str, ...]:
    if isinstance(command, Iterable) and not isinstance(command, (bytes, bytearray, Mapping, Set)):
        parts: list[object] = [os.fspath(part) if isinstance(part, os.PathLike) else part for part in command]
        if all(isinstance(part, str) for part in parts):
            return tuple(map(str, parts))
    raise InvalidSpecError(
        f"{command!r} is not a command", hint="give a shell line, or a list of arguments, all of type str"
    )


def _check_env(env: Mapping[str, str]) -> None:
    check_texts("env", env)
    for name in env:
        if not name or "=" in name:
            hint = "give a name that is not empty and has no '='"
            raise InvalidSpecError(f"{name!r} cannot be an environment variable", hint=hint)


class Collector:
    """Collects a program's output and passes it to the callbacks."""

    def __init__(
        self,
        max_output_bytes: int,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> None:
        hint = "give how many bytes to keep, 0 or more"
        check_number("max_output_bytes", max_output_bytes, least=0, hint=hint)
        self._tails = {"o": Tail(max_output_bytes), "e": Tail(max_output_bytes)}
        self._tails["t"] = self._tails["o"]
        self._callbacks = {"stdout": on_stdout, "terminal": on_stdout, "stderr": on_stderr}
        self._decoder = Decoder() if on_stdout is not None or on_stderr is not None else None

    def add(self, frame: Frame) -> None:
        """Take the next piece."""
        self._tails[frame.kind].add(frame.payload)
        if self._decoder is not None:
            self._tell(self._decoder.output(STREAM_OF[frame.kind], frame.payload))

    def _tell(self, output: Output) -> None:
        callback = self._callbacks[output.stream]
        if callback is not None and output.text:
            call(callback, output.text)

    def result(self, end: ProcessEnd, command: str = "") -> ExecResult:
        """Return the result of the program named ``command``."""
        if self._decoder is not None:
            for output in self._decoder.rest():
                self._tell(output)
        stdout, stderr = self._tails["o"].bytes(), self._tails["e"].bytes()
        return ExecResult(
            exit_code=end.exit_code,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            truncated=end.missed or self._tails["o"].truncated or self._tails["e"].truncated,
            command=command,
            memory_kill=end.memory_kill,
        )


def check_end(
    end: ProcessEnd, result: ExecResult, what: str, sandbox_id: str, *, timeout_ms: int = 0
) -> None:
    """Raise the error that belongs to a program's end, if any.

    Args:
        end: How the program ended.
        result: The program's output until then.
        what: The program's description.
        sandbox_id: The sandbox it ran in.
        timeout_ms: How long the program was allowed to run; 0 means unknown.

    Raises:
        ExecTimeoutError: The program was killed for its timeout.
        AgentError: The agent could not follow the program to its end.
    """
    if end.timed_out:
        error = ExecTimeoutError(
            f"{what} ran past {f'{timeout_ms / 1000:g} s' if timeout_ms else 'its timeout_s'}, and was killed",
            hint="give a longer timeout_s or None for no limit, or start it in the background with `processes.start`",
            sandbox_id=sandbox_id,
        )
        error.result = result
        raise error
    if end.error:
        raise AgentError(f"{what} could not be followed to its end: {end.error}", sandbox_id=sandbox_id)


class _Stdin:
    """Feeds a program's standard input while its output is read."""

    def __init__(self, agent: Agent, pid: int) -> None:
        self._agent = agent
        self._pid = pid
        self.error: Exception | None = None

    def feed(self, data: Upload) -> None:
        """Send all of the data, then close.

        An error of the caller's iterable is stored, and ends the program.
        """
        try:
            self._agent.call(write_stdin(self._pid, end=True, body=None), body=data, timeout_s=None)
        except AtollError as error:
            # a program need not read its input; how it ended tells the rest
            if error.sandbox_id is not None or not isinstance(error, InvalidSpecError):
                return
            self.error = error  # not an error from inside: a piece of the data is not bytes
            kill_quietly(self._agent, self._pid)
        except Exception as error:
            self.error = error
            kill_quietly(self._agent, self._pid)


def kill_quietly(agent: Agent, pid: int) -> None:
    """Kill a program if it still runs. This takes a few seconds at most, also for a cancelled caller."""
    with shielded(_KILL_S):
        with contextlib.suppress(AtollError):  # the program, or its whole sandbox, may have ended meanwhile
            agent.call(signal_process(pid, _KILL), timeout_s=_KILL_S, repeatable=True)


def _kill(agent: Agent, pid: int, tag: str | None) -> None:
    """Kill a program, whether or not its pid is known yet."""
    (kill_quietly(agent, pid) if pid else _kill_tagged(agent, tag))


def _kill_tagged(agent: Agent, tag: str | None) -> None:
    """Kill a program whose start was interrupted before its pid was known."""
    with shielded(_KILL_S):
        with contextlib.suppress(AtollError):  # the program may never have started
            for row in processes_from(agent.call(list_processes(), timeout_s=_KILL_S)):
                if row.tag == tag:
                    kill_quietly(agent, row.pid)


def silence_of(program: Program | None) -> float:
    """Return the longest wait for the agent's next word about a program: it tells of its end at its timeout."""
    if program is None or not program.timeout_ms:
        return SILENCE_S
    return min(SILENCE_S, program.timeout_ms / 1000 + GRACE_S)


def execute(
    agent: Agent, program: Program, collector: Collector, *, stdin: Stdin | None, timeout_s: float | None
) -> ExecResult:
    """Run a program to its end. An interrupted or cancelled caller, or one whose callback fails, kills it."""
    with running(agent.sandbox_id, program) as span:
        return _run(agent, span, collector, stdin, timeout_s)


def _run(
    agent: Agent, span: ProcessSpan, collector: Collector, stdin: Stdin | None, timeout_s: float | None
) -> ExecResult:
    program = span.program
    deadline = Deadline(None if timeout_s is None else timeout_s + GRACE_S, silence_s=SILENCE_S)
    if stdin is not None:
        check_upload(stdin)
    pid = 0
    try:
        patience_ms = _PATIENCE_MS if stdin is None else 0
        frames = Frames(agent.open(start_process(program, patience_ms=patience_ms), deadline))
        try:
            pid = started_from((frames.next()).payload)
            span.started(pid)
            agent.tell(program_line(program))
            if stdin is None:
                end = _follow(frames, collector)
            else:
                end = _feed_and_follow(agent, pid, frames, collector, stdin)
        finally:
            frames.close()
    except (SandboxCrashedError, NotFoundError, StateError, UnresponsiveError):
        # either nothing runs that could be killed, or the sandbox sleeps and must not be woken, or hears nothing
        raise
    except DeadlineError:
        if not program.timeout_ms:  # otherwise the agent kills it, and this call has had its time
            _kill(agent, pid, program.tag)
        raise
    except BaseException as error:
        if pid or not isinstance(error, AtollError):
            _kill(agent, pid, program.tag)
        raise
    span.ended(end)
    result = collector.result(end, brief(program))
    check_end(end, result, repr(result.command), agent.sandbox_id, timeout_ms=program.timeout_ms)
    return result


def exec_tag() -> str:
    """Return a tag by which to find a program whose start was interrupted."""
    return f"exec-{os.urandom(8).hex()}"


def brief(program: Program) -> str:
    """Describe a program in 80 characters at most."""
    text = program.line if program.line is not None else " ".join(program.argv or ())
    return text if len(text) <= _BRIEF_CHARS else text[: _BRIEF_CHARS - 3] + "..."


def _follow(frames: Frames, collector: Collector) -> ProcessEnd:
    while True:
        frame = frames.next()
        if frame.kind == "x":
            frames.until_end()
            return end_from(frame.payload)
        if frame.kind in STREAM_OF:
            collector.add(frame)


def _feed_and_follow(
    agent: Agent, pid: int, frames: Frames, collector: Collector, stdin: Stdin
) -> ProcessEnd:
    if isinstance(stdin, (str, bytes, bytearray, memoryview)):
        stdin = as_bytes(stdin)
        if len(stdin) <= _SMALL_STDIN_BYTES:
            with contextlib.suppress(NotFoundError):  # the program ended without reading
                agent.call(write_stdin(pid, end=True, body=stdin))
            return _follow(frames, collector)
        stdin = sliced(stdin)
    feeder = _Stdin(agent, pid)
    with Background(wait_s=0.2) as background:
        background.start(feeder.feed, stdin)
        end = _follow(frames, collector)
    if feeder.error is not None:
        raise feeder.error
    return end
