# Made by scripts/unasync.py from sdk/_async/sessions.py: do not edit.
"""Programs of a sandbox that go on beside the caller: in the background, on a terminal, started by somebody else."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from atoll.errors import InvalidSpecError, ProcessNotFoundError
from atoll.guest import list_processes, processes_from
from atoll.sdk._sync.process import Process, started
from atoll.sdk._sync.programs import Command, program_of
from atoll.sdk._sync.states import States
from atoll.sdk._sync.terminal import Terminal, opened, reopened
from atoll.types import GuestPath, ProcessInfo, TerminalSize, check_kind, check_number

_LOGIN_SHELL = 'exec "${SHELL:-/bin/sh}" -l'
_PID_HINT = "`processes` lists those there are"


class Sessions(States):
    """What of a sandbox concerns programs that outlive the call that began them."""

    def start(
        self,
        command: Command,
        *,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        stdin: bool = False,
        timeout_s: float | None = None,
        stream: bool = False,
    ) -> Process:
        """Start a program in the background and return a handle. It outlives this client, and sleeps with the sandbox.

        Args:
            command: A shell line (str), or a program and its arguments (a list).
            cwd: Directory in the sandbox; None is the user's own.
            env: Variables on top of the sandbox's.
            user: Name of a user in the sandbox; None is the default user.
            stdin: Keep its standard input open for ``write_stdin``; False gives it /dev/null.
            timeout_s: Seconds until it is killed, those asleep included; None never.
            stream: Follow its output from the first byte; it then waits while nobody iterates or waits. False lets
                it run freely, and keeps the last MiB of its output for whoever asks.

        Raises:
            FileMissingError: The program or ``cwd`` is not in the sandbox.
            FileDeniedError: The user may not execute it.
            InvalidSpecError: ``user`` is unknown, or ``command`` empty.
        """
        program = program_of(command, cwd=cwd, env=env, user=user, timeout_s=timeout_s, stdin=stdin)
        return started(self._agent, program, stream=stream)

    def pty(
        self,
        command: Command | None = None,
        *,
        size: TerminalSize | None = None,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        timeout_s: float | None = None,
    ) -> Terminal:
        """Start a program on a terminal.

        Args:
            command: A shell line or a list of arguments; None is the user's login shell.
            size: Its size; None is 80 by 24.
            cwd: Directory in the sandbox; None is the user's own.
            env: Variables on top of the sandbox's; ``TERM`` is ``xterm-256color`` unless given.
            user: Name of a user in the sandbox; None is the default user.
            timeout_s: Seconds until it is killed, those asleep included; None never.

        Raises:
            FileMissingError: The program or ``cwd`` is not in the sandbox.
            InvalidSpecError: ``user`` is unknown.
        """
        program = program_of(
            _LOGIN_SHELL if command is None else command,
            cwd=cwd,
            env={"TERM": "xterm-256color", **(env or {})},
            user=user,
            timeout_s=timeout_s,
            stdin=True,
            pty=size or TerminalSize(),
        )
        return opened(self._agent, program)

    def processes(self) -> list[ProcessInfo]:
        """The programs that were started through atoll or an E2B SDK and still run."""
        return processes_from(self._agent.call(list_processes()))

    def attach(self, pid: int) -> Process:
        """A handle on a program that somebody started, also one that ended in the last 10 minutes.

        Nothing is asked of the sandbox yet: a pid that is wrong shows at the handle's first use, as a
        ProcessNotFoundError.
        """
        check_number("pid", pid, least=1, whole=True, hint=_PID_HINT)
        return Process(self._agent, pid)

    def attach_terminal(self, pid: int, *, size: TerminalSize | None = None) -> Terminal:
        """The terminal of a program that somebody started on one: what was kept of its output, then what comes.

        Leaving it as a context leaves the program alone. It wakes the sandbox.

        Args:
            pid: Which program: `processes` lists those with a terminal.
            size: Give the terminal this size; None leaves it.

        Raises:
            ProcessNotFoundError: There is no such program, or it ended more than 10 minutes ago.
            InvalidSpecError: It has no terminal; `attach` follows its output.
        """
        check_number("pid", pid, least=1, whole=True, hint=_PID_HINT)
        if size is not None:
            check_kind("size", size, TerminalSize)
        if any(row.pid == pid and not row.pty for row in self.processes()):
            raise InvalidSpecError(
                f"the program with pid {pid} has no terminal",
                hint="follow its output with `attach`",
                sandbox_id=self.id,
            )
        terminal = reopened(self._agent, pid)
        if size is not None:
            with contextlib.suppress(ProcessNotFoundError):  # what it said until it ended is still there
                terminal.resize(size)
        return terminal
