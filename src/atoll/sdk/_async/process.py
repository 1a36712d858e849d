"""A program that runs in the background of a sandbox."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator

from atoll.errors import DeadlineError, InvalidSpecError, ProcessNotFoundError
from atoll.guest import (
    Frame,
    ProcessEnd,
    Program,
    end_from,
    process_output,
    signal_process,
    start_process,
    started_from,
    write_stdin,
)
from atoll.sdk._async.agent import AsyncAgent, AsyncFrames
from atoll.sdk._async.http import Upload
from atoll.sdk._async.programs import (
    MAX_OUTPUT_BYTES,
    Collector,
    OutputCallback,
    brief,
    check_end,
    silence_of,
)
from atoll.sdk._bytes import as_bytes, check_upload, sliced
from atoll.sdk._deadline import Deadline
from atoll.sdk._output import STREAM_OF, Decoder
from atoll.sdk._telling import program_line
from atoll.sdk._tracing import ProcessSpan, starting
from atoll.types import ExecResult, Output
from atoll.types.internal import check_number

# by its number, since Windows has no such signal
_SIGKILL = 9


class AsyncProcess:
    """A program in a sandbox, by its ``pid``.

    The program continues when this object is closed or this client ends. Iterating gives the output piece by
    piece until the program ends: first the output that the guest kept (the last MiB), then new output. With
    ``start(…, stream=True)`` it gives every byte, and the program blocks while nobody reads. After an error,
    a cancellation or Ctrl-C broke off a wait, the next one starts with the kept output, so output may repeat.
    One thread or task reads at a time. The other methods may be called meanwhile.
    """

    def __init__(
        self,
        agent: AsyncAgent,
        pid: int,
        frames: AsyncFrames | None = None,
        *,
        program: Program | None = None,
    ) -> None:
        self.pid = pid
        self._agent = agent
        self._program = program
        self._frames = frames
        self._end: ProcessEnd | None = None
        self._decoder = Decoder()

    async def __aenter__(self) -> AsyncProcess:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.pid} in sandbox {self._agent.sandbox_id}>"

    async def __aiter__(self) -> AsyncIterator[Output]:
        deadline = Deadline(None, silence_s=silence_of(self._program))
        while self._end is None:
            frame = await self._next(deadline)
            if frame.kind in STREAM_OF:
                yield self._decoder.output(STREAM_OF[frame.kind], frame.payload)
        for output in self._decoder.rest():
            yield output

    async def wait(
        self,
        *,
        timeout_s: float | None = None,
        on_stdout: OutputCallback | None = None,
        on_stderr: OutputCallback | None = None,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        """Wait until the program ends, and return its result with the output that was not read by iterating.

        Args:
            timeout_s: Seconds to wait. The program continues after that. None waits as long as the program
                runs.
            on_stdout: Called with each piece of output, or of the terminal's output, as text.
            on_stderr: The same for standard error.
            max_output_bytes: How many bytes of each stream to keep, the last ones.

        Raises:
            DeadlineError: ``timeout_s`` passed.
            ExecTimeoutError: The program ran past the ``timeout_s`` given at its start and was killed.
            ProcessNotFoundError: The program ended more than 10 minutes ago.
            SandboxCrashedError: The sandbox's processes died.
            StateError: The sandbox was put to sleep meanwhile. The program continues when the sandbox wakes.
        """
        if timeout_s is not None:
            check_number("timeout_s", timeout_s, hint="give seconds, or None to wait as long as it runs")
        collector = Collector(max_output_bytes, on_stdout, on_stderr)
        deadline = Deadline(timeout_s, silence_s=silence_of(self._program))
        while self._end is None:
            try:
                frame = await self._next(deadline)
            except DeadlineError:
                if timeout_s is None:
                    raise
                raise DeadlineError(
                    f"the program with pid {self.pid} has not ended within {timeout_s} s",
                    hint="it still runs: wait longer, or kill it",
                    sandbox_id=self._agent.sandbox_id,
                ) from None
            if frame.kind in STREAM_OF:
                await collector.add(frame)
        program = self._program
        result = await collector.result(self._end, brief(program) if program else "")
        what = f"the program with pid {self.pid}"
        timeout_ms = program.timeout_ms if program else 0
        check_end(self._end, result, what, self._agent.sandbox_id, timeout_ms=timeout_ms)
        return result

    async def kill(self) -> None:
        """Kill the program and its process group (SIGKILL). It is no error if the program has ended.

        Raises:
            SandboxCrashedError: The sandbox's processes died.
        """
        try:
            await self.send_signal(_SIGKILL)
        except ProcessNotFoundError:
            return

    async def send_signal(self, number: int) -> None:
        """Send a signal to the program's process group.

        Raises:
            ProcessNotFoundError: The program has ended.
        """
        check_number(
            "number", number, whole=True, hint="give the number of a signal, as in the module signal"
        )
        await self._agent.call(signal_process(self.pid, int(number)))

    async def write_stdin(self, data: bytes | str | Upload) -> None:
        """Write to the program's standard input, and return when the guest has taken all of it.

        The program must have been started with ``stdin=True``.

        Raises:
            ProcessNotFoundError: The program has ended.
            InvalidSpecError: The program was started without ``stdin=True``, or its standard input is closed.
            DeadlineError: The program read nothing for 60 seconds.
        """
        if isinstance(data, (str, bytes, bytearray, memoryview)):
            data = sliced(as_bytes(data))
        check_upload(data)
        with _stdin_explained():
            await self._agent.call(write_stdin(self.pid, end=False, body=None), body=data, timeout_s=None)

    async def close_stdin(self) -> None:
        """Close the program's standard input, so that it reads the end.

        Raises:
            ProcessNotFoundError: The program has ended.
            InvalidSpecError: The program was started without ``stdin=True``, or its standard input is closed
                already.
        """
        with _stdin_explained():
            await self._agent.call(write_stdin(self.pid, end=True, body=b""))

    def close(self) -> None:
        """Stop following the program's output. The program continues."""
        if self._frames is not None:
            self._frames.close()
            self._frames = None

    async def _next(self, deadline: Deadline) -> Frame:
        try:
            frames = await self._opened(deadline)
            frame = await frames.next()
            if frame.kind == "x":
                await frames.until_end()
                self.close()
                self._end = end_from(frame.payload)
        except BaseException:
            # the program may continue, also after a cancellation or Ctrl-C, and the next use finds it again
            self.close()
            raise
        return frame

    async def _opened(self, deadline: Deadline) -> AsyncFrames:
        if self._frames is None:
            # repeated output must not be joined to the rest of a character that was cut in two
            self._decoder = Decoder()
            self._frames = AsyncFrames(await self._agent.open(process_output(self.pid), deadline))
            started_from((await self._frames.next()).payload)
        self._frames.set_deadline(deadline)
        return self._frames


@contextlib.contextmanager
def _stdin_explained() -> Iterator[None]:
    """Name the remedy in the error when a program has no standard input."""
    try:
        yield
    except InvalidSpecError as error:
        error.remedy = "start it with `stdin=True`; a closed standard input stays closed"
        raise


async def started(agent: AsyncAgent, program: Program, *, stream: bool) -> AsyncProcess:
    """Start a program. With ``stream``, follow its output from the first byte."""
    with starting(agent.sandbox_id, program) as span:
        return await _started(agent, span, stream)


async def _started(agent: AsyncAgent, span: ProcessSpan, stream: bool) -> AsyncProcess:
    program = span.program
    deadline = Deadline(None, silence_s=silence_of(program))
    frames = AsyncFrames(await agent.open(start_process(program), deadline))
    try:
        pid = started_from((await frames.next()).payload)
    except BaseException:
        frames.close()
        raise
    span.started(pid)
    agent.tell(program_line(program))
    if stream:
        return AsyncProcess(agent, pid, frames, program=program)
    frames.close()
    return AsyncProcess(agent, pid, program=program)
