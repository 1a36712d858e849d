"""Shells on terminals in a sandbox, as SWE-ReX uses them: they keep their variables, and run what is typed."""

from __future__ import annotations

import codecs
import contextlib
import re
import secrets
import threading
import time
from collections.abc import Sequence

from swerex.exceptions import (
    BashIncorrectSyntaxError,
    CommandTimeoutError,
    NoExitCodeError,
    NonZeroExitCodeError,
    SessionNotInitializedError,
)
from swerex.runtime.abstract import (
    BashAction,
    BashInterruptAction,
    BashObservation,
    CreateBashSessionRequest,
    CreateBashSessionResponse,
)

from atoll import AtollError, Sandbox, Terminal

# beside the time that the caller gives the files to source
_START_S = 30.0
_ANSWER_S = 10.0
_CHECK_S = 30.0
# What is kept of a command's output, and how far back a text to expect may begin.
_MOST_CHARACTERS = 16 << 20
_OVERLAP = 4096
_ESCAPES = re.compile(r"\x1B[@-_][0-?]*[ -/]*[@-~]")

# An ordinary interactive shell, but for the prompt, which tells the exit code of what ran.
_STARTUP = """\
stty -echo
for file in /etc/bash.bashrc ~/.bashrc; do if [ -r "$file" ]; then . "$file"; fi; done; unset file
{sources}
PS2= PS0= PROMPT_COMMAND="PS1='{prompt}:\\$?:'"
"""


class BashSession:
    """One shell. Its methods block, and may be called from any thread."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox
        nonce = secrets.token_hex(8)
        self._directory = f"/tmp/.swerex-{nonce}"
        self._prompt = f"PROMPT{nonce}"
        self._end = re.compile(rf"{self._prompt}:(\d+):")
        self._lock = threading.Lock()
        self._terminal: Terminal | None = None
        self._output = _Output()

    def start(self, request: CreateBashSessionRequest) -> CreateBashSessionResponse:
        """Start the shell, have it source its files, and return what they wrote.

        Raises:
            CommandTimeoutError: The files took longer than ``startup_timeout``.
            SessionNotInitializedError: The shell ended at once.
        """
        sources = "\n".join(f"source {path}" for path in request.startup_source)
        startup = f"{self._directory}/startup"
        self._sandbox.files.write(startup, _STARTUP.format(sources=sources, prompt=self._prompt))
        argv = ["bash", "--noediting", "--rcfile", startup, "-i"]
        self._terminal = self._sandbox.processes.pty(argv, env={"TERM": "dumb"})
        threading.Thread(target=_copy, args=(self._terminal, self._output), daemon=True).start()
        output, _ = self._until((), _START_S + request.startup_timeout, "the start of the shell")
        return CreateBashSessionResponse(output=output)

    def run(self, action: BashAction | BashInterruptAction) -> BashObservation:
        """Run a command, or interrupt what runs."""
        if isinstance(action, BashInterruptAction):
            return self._interrupt(action)
        with self._lock:
            if action.is_interactive_command or action.is_interactive_quit:
                return self._typed(action)
            return self._sourced(action)

    def close(self) -> None:
        """End the shell. What it started in the background goes on."""
        if self._terminal is None:
            return
        terminal, self._terminal = self._terminal, None
        with contextlib.suppress(AtollError):
            terminal.kill()
            self._sandbox.files.delete(self._directory)
        terminal.abort()
        terminal.close()

    def _typed(self, action: BashAction) -> BashObservation:
        """Type a line for the program that runs, or start one that does not end."""
        self._output.clear()
        self._send(f"{action.command}\n".encode())
        output, match = self._until(action.expect, action.timeout, repr(action.command))
        if action.is_interactive_quit:
            self._settle()
        else:
            # the program may have echoed the line
            output = output.lstrip().removeprefix(action.command).strip()
        return BashObservation(output=output, exit_code=0, expect_string=self._expected(action.expect, match))

    def _sourced(self, action: BashAction) -> BashObservation:
        """Have the shell read a command from a file, so that no terminal changes it, and wait for its end."""
        file = f"{self._directory}/command"
        self._sandbox.files.write(file, f"{action.command}\n")
        self._check_syntax(action.command, file)
        self._output.clear()
        self._send(f" . {file}\n".encode())
        output, match = self._until(action.expect, action.timeout, repr(action.command))
        code = int(match[1]) if match.re is self._end else None
        if action.check == "raise" and code is None:
            raise NoExitCodeError(f"the command {action.command!r} has not ended, but wrote {match[0]!r}")
        if action.check == "raise" and code != 0:
            message = (
                f"Command {action.command!r} failed with exit code {code}. Here is the output:\n{output!r}"
            )
            raise NonZeroExitCodeError(f"{action.error_msg}: {message}" if action.error_msg else message)
        return BashObservation(
            output=output,
            exit_code=None if action.check == "ignore" else code,
            expect_string=self._expected(action.expect, match),
        )

    def _interrupt(self, action: BashInterruptAction) -> BashObservation:
        """Press Ctrl-C until the shell has its prompt; suspend and kill what does not mind."""
        wait_s = max(action.timeout, 1.0)
        for _ in range(action.n_retry):
            self._send(b"\x03")
            if not self._lock.acquire(timeout=wait_s):
                continue  # another thread waits for the command, and has not got the prompt yet
            try:
                with contextlib.suppress(CommandTimeoutError):
                    output, match = self._until(action.expect, wait_s, "the interrupt")
                    expected = self._expected(action.expect, match)
                    self._settle()
                    return BashObservation(output=output.strip(), exit_code=0, expect_string=expected)
            finally:
                self._lock.release()
        self._send(b"\x1a")
        if not self._lock.acquire(timeout=_ANSWER_S):
            raise CommandTimeoutError("what runs can neither be interrupted nor suspended")
        try:
            output = ""
            with contextlib.suppress(CommandTimeoutError):  # another thread may have got this prompt
                output, _ = self._until((), wait_s, "the suspension")
            self._send(b" kill -9 %%\n")
            killed, match = self._until(action.expect, _ANSWER_S, "the kill")
            self._settle()
        finally:
            self._lock.release()
        expected = self._expected(action.expect, match)
        return BashObservation(output=(output + killed).strip(), exit_code=0, expect_string=expected)

    def _settle(self) -> None:
        """Wait until the shell reads its next line, with no echo and nothing left of what ran before."""
        nonce = secrets.token_hex(8)
        # in two parts, so that an echo of the line is not taken for its output
        self._send(f" stty -echo; printf '%s%s' {nonce[:8]} {nonce[8:]}\n".encode())
        self._output.wait([re.compile(nonce)], _ANSWER_S, "the shell's answer")
        self._until((), _ANSWER_S, "the shell's prompt")

    def _check_syntax(self, command: str, file: str) -> None:
        checked = self._sandbox.exec(["bash", "-n", file], timeout_s=_CHECK_S)
        if checked.exit_code != 0:
            raise BashIncorrectSyntaxError(
                f"Error (exit code {checked.exit_code}) while checking bash command \n{command!r}\n"
                f"---- Stderr ----\n{checked.stderr}\n---- Stdout ----\n{checked.stdout}",
                extra_info={"bash_stdout": checked.stdout, "bash_stderr": checked.stderr},
            )

    def _until(self, expect: Sequence[str], timeout_s: float | None, what: str) -> tuple[str, re.Match[str]]:
        """Wait for the prompt or one of these patterns, and return what came before it."""
        patterns = [*(re.compile(pattern, re.DOTALL) for pattern in expect), self._end]
        output, match = self._output.wait(patterns, timeout_s, what)
        return _ESCAPES.sub("", output).replace("\r\n", "\n"), match

    def _expected(self, expect: Sequence[str], match: re.Match[str]) -> str:
        return self._prompt if match.re is self._end else match.re.pattern

    def _send(self, data: bytes) -> None:
        if self._terminal is None:
            raise SessionNotInitializedError("the shell is not started")
        try:
            self._terminal.send(data)
        except AtollError as error:
            raise SessionNotInitializedError(f"the shell has ended: {error}") from error


class _Output:
    """What a shell has written and nobody has taken yet: the last part of it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text = ""
        self._ended: str | None = None

    def add(self, text: str) -> None:
        with self._changed:
            self._text = (self._text + text)[-_MOST_CHARACTERS:]
            self._changed.notify_all()

    def end(self, reason: str) -> None:
        with self._changed:
            self._ended = reason
            self._changed.notify_all()

    def clear(self) -> None:
        with self._changed:
            self._text = ""

    def wait(
        self, patterns: Sequence[re.Pattern[str]], timeout_s: float | None, what: str
    ) -> tuple[str, re.Match[str]]:
        """Take everything up to the first match of a pattern, and return what was before it."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        searched = 0
        with self._changed:
            while True:
                start = max(0, searched - _OVERLAP)
                found = [match for one in patterns if (match := one.search(self._text, start))]
                if found:
                    first = min(found, key=lambda match: match.start())
                    before, self._text = self._text[: first.start()], self._text[first.end() :]
                    return before, first
                if self._ended is not None:
                    raise SessionNotInitializedError(f"the shell has ended: {self._ended}")
                searched = len(self._text)
                left_s = None if end_s is None else end_s - time.monotonic()
                if (left_s is not None and left_s <= 0) or not self._changed.wait(left_s):
                    raise CommandTimeoutError(f"timeout after {timeout_s} seconds while running {what}")


def _copy(terminal: Terminal, output: _Output) -> None:
    """Copy what a terminal shows, until its program has ended."""
    decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")
    try:
        for data in terminal:
            output.add(decoder.decode(data))
    except (AtollError, OSError) as error:
        output.end(str(error))
    else:
        output.end("it exited")
