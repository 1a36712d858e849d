# Made by scripts/unasync.py from sdk/_async/terminal.py: do not edit.
"""A program on a terminal in a sandbox."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.guest import (
    ProcessEnd,
    Program,
    end_from,
    kept_from,
    process_output,
    resize_process,
    signal_process,
    start_process,
    started_from,
    write_stdin,
)
from atoll.sdk._sync.agent import SILENCE_S, Agent, Frames
from atoll.sdk._sync.programs import check_end, kill_quietly
from atoll.sdk._bytes import as_bytes
from atoll.sdk._deadline import Deadline
from atoll.sdk._telling import program_line
from atoll.sdk._tracing import ProcessSpan, starting
from atoll.types import ExecResult, TerminalSize
from atoll.types.internal import check_kind, check_number


class Terminal:
    """A terminal session: raw bytes in and out. Leaving it as a context kills the program.

    The program is not killed in these cases:

    - after ``close``;
    - if the sandbox was put to sleep or rolled back, or crashed: nothing is woken for that;
    - if the session comes from ``attach_terminal``, because somebody else started the program.

    One thread or task receives at a time. ``send``, ``resize`` and ``kill`` may be called meanwhile.

    Attributes:
        pid: The program's number inside.
        kept_bytes: How many of the first bytes were written before this session began.
    """

    def __init__(
        self, agent: Agent, pid: int, frames: Frames, *, kept_bytes: int = 0, kills: bool = True
    ) -> None:
        self.pid = pid
        self.kept_bytes = kept_bytes
        self._kills = kills
        self._agent = agent
        self._frames = frames
        self._end: ProcessEnd | None = None
        self._closed = False

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self._kills and self._end is None and not self._closed and not self._frames.lost:
            kill_quietly(self._agent, self.pid)
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pid} in sandbox {self._agent.sandbox_id}>"

    def __iter__(self) -> Iterator[bytes]:
        while data := self.receive():
            yield data

    def receive(self) -> bytes:
        """Wait for bytes from the terminal; ``b""`` means that the program has ended.

        Raises:
            SandboxCrashedError: The sandbox's processes died.
            StateError: Somebody put the sandbox to sleep meanwhile, or an earlier wait was cancelled.
        """
        while self._end is None:
            frame = self._frames.next()
            if frame.kind == "t":
                return frame.payload
            if frame.kind == "x":
                self._end = end_from(frame.payload)
                self._frames.until_end()
                self.close()
        return b""

    def send(self, data: bytes) -> None:
        """Type ``data`` on the terminal.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        self._agent.call(write_stdin(self.pid, end=False, body=as_bytes(data)))

    def resize(self, size: TerminalSize) -> None:
        """Tell the terminal its new size.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        check_kind("size", size, TerminalSize)
        self._agent.call(resize_process(self.pid, size), repeatable=True)

    def send_signal(self, number: int) -> None:
        """Send a signal to the program's process group.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        check_number(
            "number", number, whole=True, hint="give the number of a signal, as in the module signal"
        )
        self._agent.call(signal_process(self.pid, int(number)))

    def wait(self) -> ExecResult:
        """Read and drop the output until the program ends, and return how it ended.

        Raises:
            ExecTimeoutError: The program ran past its ``timeout_s`` and was killed.
            SandboxCrashedError: The sandbox's processes died.
        """
        while self._end is None:
            self.receive()
        result = ExecResult(exit_code=self._end.exit_code, memory_kill=self._end.memory_kill)
        check_end(self._end, result, "the program on the terminal", self._agent.sandbox_id)
        return result

    def kill(self) -> None:
        """Kill the program. It is no error if it has ended."""
        kill_quietly(self._agent, self.pid)

    def abort(self) -> None:
        """Make a waiting ``receive`` end with an error, in any thread or task. The program continues."""
        self._frames.abort()

    def close(self) -> None:
        """Leave the terminal.

        The program continues, also after the context ends, and ``processes.attach`` finds it.
        """
        self._closed = True
        self._frames.close()


def opened(agent: Agent, program: Program) -> Terminal:
    """Start a program on a terminal."""
    with starting(agent.sandbox_id, program) as span:
        return _opened(agent, span)


def _opened(agent: Agent, span: ProcessSpan) -> Terminal:
    program = span.program
    frames = Frames(agent.open(start_process(program), Deadline(None, silence_s=SILENCE_S)))
    try:
        terminal = Terminal(agent, started_from((frames.next()).payload), frames)
        span.started(terminal.pid)
        agent.tell(program_line(program))
        return terminal
    except BaseException:
        frames.close()
        raise


def reopened(agent: Agent, pid: int) -> Terminal:
    """Follow the terminal of a program that somebody started."""
    frames = Frames(agent.open(process_output(pid), Deadline(None, silence_s=SILENCE_S)))
    try:
        kept = kept_from((frames.next()).payload)
        return Terminal(agent, pid, frames, kept_bytes=kept, kills=False)
    except BaseException:
        frames.close()
        raise
