# Made by scripts/unasync.py from sdk/_async/processes.py: do not edit.
"""Programs that run beside the caller: in the background, on a terminal, or started by somebody else."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from atoll.errors import InvalidSpecError, ProcessNotFoundError
from atoll.guest import list_processes, processes_from
from atoll.sdk._sync.agent import Agent
from atoll.sdk._sync.process import Process, started
from atoll.sdk._sync.programs import Command, program_of
from atoll.sdk._sync.terminal import Terminal, opened, reopened
from atoll.sdk._foreign import Part, no_foreign_arguments
from atoll.types import GuestPath, ProcessInfo, Rows, TerminalSize
from atoll.types.internal import check_kind, check_number

_LOGIN_SHELL = 'exec "${SHELL:-/bin/sh}" -l'
_PID_HINT = "`processes.list` lists the running programs"

# Inside the class, `list` means the method below.
_Infos = list[ProcessInfo]


class Processes(Part):
    """The programs of a sandbox that outlive the call that started them. Each method wakes the sandbox."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._agent.sandbox_id}>"

    @no_foreign_arguments
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
        """Start a program in the background and return a handle.

        The program outlives this client, and sleeps with the sandbox.

        Args:
            command: A shell line (str), or a program and its arguments (a list).
            cwd: Directory in the sandbox; None means the user's own directory.
            env: Variables on top of the sandbox's.
            user: Name of a user in the sandbox; None means the default user.
            stdin: Keep the program's standard input open for ``write_stdin``. False gives it /dev/null.
            timeout_s: Seconds until the program is killed, including time asleep. None means never.
            stream: Follow the output from the first byte. The program then blocks while nobody iterates or
                waits. False lets it run freely and keeps the last MiB of its output.

        Raises:
            FileMissingError: The program or ``cwd`` is not in the sandbox.
            FileDeniedError: The user may not execute the program.
            InvalidSpecError: ``user`` is unknown, or ``command`` is empty.
        """
        program = program_of(command, cwd=cwd, env=env, user=user, timeout_s=timeout_s, stdin=stdin)
        return started(self._agent, program, stream=stream)

    @no_foreign_arguments
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
            command: A shell line or a list of arguments; None means the user's login shell.
            size: The terminal's size; None means 80 by 24.
            cwd: Directory in the sandbox; None means the user's own directory.
            env: Variables on top of the sandbox's; ``TERM`` is ``xterm-256color`` unless given.
            user: Name of a user in the sandbox; None means the default user.
            timeout_s: Seconds until the program is killed, including time asleep. None means never.

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

    def list(self) -> _Infos:
        """List the running programs that were started through atoll or an E2B SDK."""
        return Rows(processes_from(self._agent.call(list_processes())))

    def attach(self, pid: int) -> Process:
        """Return a handle on a program that somebody started, even if it ended in the last 10 minutes.

        This does not ask the sandbox. With a wrong pid, the first use of the handle raises
        ProcessNotFoundError.
        """
        check_number("pid", pid, least=1, whole=True, hint=_PID_HINT)
        return Process(self._agent, pid)

    def attach_terminal(self, pid: int, *, size: TerminalSize | None = None) -> Terminal:
        """Attach to the terminal of a program that somebody started.

        The kept output comes first, then new output. Attaching wakes the sandbox. Leaving the context does
        not affect the program.

        Args:
            pid: The program's pid; `list` tells which programs have a terminal.
            size: The size to give the terminal. None does not change it.

        Raises:
            ProcessNotFoundError: There is no such program, or the program ended more than 10 minutes ago.
            InvalidSpecError: The program has no terminal; `attach` follows its output.
        """
        check_number("pid", pid, least=1, whole=True, hint=_PID_HINT)
        if size is not None:
            check_kind("size", size, TerminalSize)
        if any(row.pid == pid and not row.pty for row in self.list()):
            raise InvalidSpecError(
                f"the program with pid {pid} has no terminal",
                hint="follow its output with `processes.attach`",
                sandbox_id=self._agent.sandbox_id,
            )
        terminal = reopened(self._agent, pid)
        if size is not None:
            with contextlib.suppress(ProcessNotFoundError):  # its output until its end can still be read
                terminal.resize(size)
        return terminal
