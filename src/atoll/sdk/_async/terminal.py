"""A program on a terminal in a sandbox."""

from __future__ import annotations

from collections.abc import AsyncIterator

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
from atoll.sdk._async.agent import SILENCE_S, AsyncAgent, AsyncFrames
from atoll.sdk._async.programs import check_end, kill_quietly
from atoll.sdk._bytes import as_bytes
from atoll.sdk._deadline import Deadline
from atoll.sdk._telling import program_line
from atoll.sdk._tracing import ProcessSpan, starting
from atoll.types import ExecResult, TerminalSize
from atoll.types.internal import check_kind, check_number


class AsyncTerminal:
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
        self, agent: AsyncAgent, pid: int, frames: AsyncFrames, *, kept_bytes: int = 0, kills: bool = True
    ) -> None:
        self.pid = pid
        self.kept_bytes = kept_bytes
        self._kills = kills
        self._agent = agent
        self._frames = frames
        self._end: ProcessEnd | None = None
        self._closed = False

    async def __aenter__(self) -> AsyncTerminal:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._kills and self._end is None and not self._closed and not self._frames.lost:
            await kill_quietly(self._agent, self.pid)
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pid} in sandbox {self._agent.sandbox_id}>"

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while data := await self.receive():
            yield data

    async def receive(self) -> bytes:
        """Wait for bytes from the terminal; ``b""`` means that the program has ended.

        Raises:
            SandboxCrashedError: The sandbox's processes died.
            StateError: Somebody put the sandbox to sleep meanwhile, or an earlier wait was cancelled.
        """
        while self._end is None:
            frame = await self._frames.next()
            if frame.kind == "t":
                return frame.payload
            if frame.kind == "x":
                self._end = end_from(frame.payload)
                await self._frames.until_end()
                self.close()
        return b""

    async def send(self, data: bytes) -> None:
        """Type ``data`` on the terminal.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        await self._agent.call(write_stdin(self.pid, end=False, body=as_bytes(data)))

    async def resize(self, size: TerminalSize) -> None:
        """Tell the terminal its new size.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        check_kind("size", size, TerminalSize)
        await self._agent.call(resize_process(self.pid, size), repeatable=True)

    async def send_signal(self, number: int) -> None:
        """Send a signal to the program's process group.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        check_number(
            "number", number, whole=True, hint="give the number of a signal, as in the module signal"
        )
        await self._agent.call(signal_process(self.pid, int(number)))

    async def wait(self) -> ExecResult:
        """Read and drop the output until the program ends, and return how it ended.

        Raises:
            ExecTimeoutError: The program ran past its ``timeout_s`` and was killed.
            SandboxCrashedError: The sandbox's processes died.
        """
        while self._end is None:
            await self.receive()
        result = ExecResult(exit_code=self._end.exit_code, memory_kill=self._end.memory_kill)
        check_end(self._end, result, "the program on the terminal", self._agent.sandbox_id)
        return result

    async def kill(self) -> None:
        """Kill the program. It is no error if it has ended."""
        await kill_quietly(self._agent, self.pid)

    def abort(self) -> None:
        """Make a waiting ``receive`` end with an error, in any thread or task. The program continues."""
        self._frames.abort()

    def close(self) -> None:
        """Leave the terminal.

        The program continues, also after the context ends, and ``processes.attach`` finds it.
        """
        self._closed = True
        self._frames.close()


async def opened(agent: AsyncAgent, program: Program) -> AsyncTerminal:
    """Start a program on a terminal."""
    with starting(agent.sandbox_id, program) as span:
        return await _opened(agent, span)


async def _opened(agent: AsyncAgent, span: ProcessSpan) -> AsyncTerminal:
    program = span.program
    frames = AsyncFrames(await agent.open(start_process(program), Deadline(None, silence_s=SILENCE_S)))
    try:
        terminal = AsyncTerminal(agent, started_from((await frames.next()).payload), frames)
        span.started(terminal.pid)
        agent.tell(program_line(program))
        return terminal
    except BaseException:
        frames.close()
        raise


async def reopened(agent: AsyncAgent, pid: int) -> AsyncTerminal:
    """Follow the terminal of a program that somebody started."""
    frames = AsyncFrames(await agent.open(process_output(pid), Deadline(None, silence_s=SILENCE_S)))
    try:
        kept = kept_from((await frames.next()).payload)
        return AsyncTerminal(agent, pid, frames, kept_bytes=kept, kills=False)
    except BaseException:
        frames.close()
        raise
