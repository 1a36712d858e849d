"""Programs inside a sandbox and what came of them."""

from __future__ import annotations

from typing import Literal

import msgspec

from atoll.errors import ExecFailedError


class TerminalSize(msgspec.Struct, frozen=True):
    """A terminal's size in characters."""

    cols: int = 80
    rows: int = 24


class ProcessInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A program that was started through atoll or an E2B SDK and still runs. ``started_at`` is in Unix seconds."""

    pid: int
    argv: list[str]
    cwd: str
    user: str
    started_at: float
    pty: bool = False
    tag: str | None = None


class ExecResult(msgspec.Struct, frozen=True, kw_only=True):
    """How a program ended and what it wrote.

    ``exit_code`` is 128 + N when signal N ended it. ``truncated`` says that it wrote more than is here: of each
    stream the last ``max_output_bytes`` are kept, and of what nobody read while it ran the last MiB. ``command`` is
    the shell line, or the program and its arguments, cut to 80 characters; empty where only the pid is known.
    """

    exit_code: int
    stdout_bytes: bytes = b""
    stderr_bytes: bytes = b""
    truncated: bool = False
    command: str = ""

    @property
    def stdout(self) -> str:
        """What it wrote to standard output, as UTF-8 with bad bytes replaced."""
        return self.stdout_bytes.decode("utf-8", "replace")

    @property
    def stderr(self) -> str:
        """What it wrote to standard error, as UTF-8 with bad bytes replaced."""
        return self.stderr_bytes.decode("utf-8", "replace")

    def check(self) -> ExecResult:
        """Return itself if the exit code is 0.

        Raises:
            ExecFailedError: It is another; the message ends with the last 2,000 characters of standard error, and the
                error's ``result`` is this one.
        """
        if not self.exit_code:
            return self
        what = repr(self.command) if self.command else "the program"
        said = self.stderr.strip()[-2000:]
        error = ExecFailedError(f"{what} ended with {self.exit_code}{f': {said}' if said else ''}")
        error.result = self
        raise error


class Output(msgspec.Struct, frozen=True, kw_only=True):
    """A piece of what a program wrote, in the order of its arrival.

    ``data`` is what came, ``text`` the same as UTF-8 with bad bytes replaced; a character that was cut in two comes
    whole in the text of the later piece.
    """

    stream: Literal["stdout", "stderr", "terminal"]
    data: bytes
    text: str
