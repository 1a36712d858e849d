"""Programs inside a sandbox and their results."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from atoll.errors import ExecFailedError
from atoll.types.notebook import html_of, html_output

_Count = Annotated[int, Meta(ge=0, le=(1 << 63) - 1)]
# of each stream, when a result is printed
_SHOWN_BYTES = 200


class TerminalSize(msgspec.Struct, frozen=True):
    """A terminal's size in characters."""

    cols: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] = 80
    rows: Annotated[int, Meta(ge=-(1 << 31), le=(1 << 31) - 1)] = 24


class ProcessInfo(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A program that was started through atoll or an E2B SDK and still runs.

    ``started_at`` is in Unix seconds.
    """

    pid: int
    argv: list[str]
    cwd: str
    user: str
    started_at: float
    pty: bool = False
    tag: str | None = None

    def _repr_html_(self) -> str:
        return html_of(self)


class MemoryKill(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was killed inside because the sandbox or the host ran short of memory.

    It used ``held_bytes`` of the ``used_bytes`` of the whole sandbox, whose limit is ``limit_bytes``. A limit
    of 0 means that the host ran short.
    """

    pid: _Count
    name: Annotated[str, Meta(max_length=64)]
    held_bytes: _Count
    used_bytes: _Count
    limit_bytes: _Count

    @property
    def is_for_host(self) -> bool:
        """Whether the host ran short of memory, so that a higher limit would not help."""
        return self.limit_bytes == 0

    @property
    def hint(self) -> str:
        """The remedy."""
        if self.is_for_host:
            return "run it again when less runs on the host, or let it use less memory"
        return "give the sandbox more memory: `atoll limits --memory`"

    def __str__(self) -> str:
        if self.is_for_host:
            return (
                f"program {self.pid} ({self.name}) was killed because the host ran short of memory; "
                f"it held {self.held_bytes >> 20} MiB"
            )
        return (
            f"program {self.pid} ({self.name}) was killed at the sandbox's memory limit of "
            f"{self.limit_bytes >> 20} MiB, of which it held {self.held_bytes >> 20} MiB"
        )


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a program and its output.

    ``exit_code`` is 128 + N if signal N ended it. ``truncated`` means that it wrote more than is here: of
    each stream the last ``max_output_bytes`` are kept. Of output that no client read while it ran, the last
    MiB is kept. ``command`` is the shell line, or the program and its arguments, cut to 80 characters; it is
    empty where only the pid is known.

    ``memory_kill`` is the last kill of the program, or of one that it had started, because the sandbox or the
    host ran short of memory. None means that there was none. After such a kill the exit code is usually 137.
    """

    exit_code: int
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    truncated: bool = False
    command: str = ""
    memory_kill: MemoryKill | None = None

    def __repr__(self) -> str:
        streams = {"stdout": self.stdout_bytes, "stderr": self.stderr_bytes}
        parts = [f"exit_code={self.exit_code}"]
        parts += [f"{name}_bytes={_shown(data)}" for name, data in streams.items() if data]
        parts += ["truncated=True"] if self.truncated else []
        parts += [f"command={self.command!r}"] if self.command else []
        parts += [f"memory_kill={self.memory_kill!r}"] if self.memory_kill is not None else []
        return f"ExecResult({', '.join(parts)})"

    @property
    def stdout(self) -> str:
        """The standard output, as UTF-8 with bad bytes replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """The standard error, as UTF-8 with bad bytes replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def check(self) -> ExecResult:
        """Return this result if the exit code is 0.

        Raises:
            ExecFailedError: The exit code is not 0. The message ends with the last 2,000 characters of
                standard error, and the error's ``result`` is this one.
        """
        if not self.exit_code:
            return self
        what = repr(self.command) if self.command else "the program"
        said, kill = self.stderr.strip()[-2000:], self.memory_kill
        error = ExecFailedError(
            f"{what} ended with {self.exit_code}{f': {kill}' if kill else ''}{f': {said}' if said else ''}",
            hint=kill.hint if kill else None,
        )
        error.result = self
        raise error

    def _repr_html_(self) -> str:
        how = f"exit code {self.exit_code}" + (", not all of its output" if self.truncated else "")
        title = f"{self.command}: {how}" if self.command else how
        return html_output(title, [("stdout", self.stdout), ("stderr", self.stderr)])


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of a program's output, in the order of arrival.

    ``data`` are the bytes, and ``text`` is the same as UTF-8 with bad bytes replaced. A character that is cut
    in two appears whole in the text of the later piece.
    """

    stream: Literal["stdout", "stderr", "terminal"]
    data: bytes
    text: str

    def __repr__(self) -> str:
        return f"Output(stream={self.stream!r}, data={_shown(self.data)})"


def _shown(data: bytes) -> str:
    """Shorten bytes to fit a line of a log or a prompt, because a program's output may have megabytes."""
    if len(data) <= _SHOWN_BYTES:
        return repr(data)
    return f"{data[:_SHOWN_BYTES]!r}... ({len(data):,} bytes)"
