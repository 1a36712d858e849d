# Made by scripts/unasync.py from tools/_async/commands.py: do not edit.
"""Tools that run programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, ClassVar

from msgspec import Meta

from atoll.errors import DeadlineError, ExecTimeoutError
from atoll.sdk import Sandbox
from atoll.tools.arguments import Directory, Line, Seconds
from atoll.tools.results import told
from atoll.tools.schema import Offer
from atoll.tools.text import KEPT_BYTES, Seen, clipped, columns

_LEAST_WAIT_S = 0.2
Pid = Annotated[int, Meta(description="The pid that `start` or `processes` gave.", ge=1)]


class CommandTools:
    """Runs programs.

    Args:
        sandbox: Where.
        on_output: Called with each piece of text that `run` and `output` see.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (
        Offer("run", "Run a command"),
        Offer("start", "Start a background command"),
        Offer("output", "Output of a background command", reads=True),
        Offer("stop", "Stop a background command"),
        Offer("processes", "List background commands", reads=True),
    )

    def __init__(self, sandbox: Sandbox, on_output: Callable[[str], Any] | None = None) -> None:
        self._sandbox = sandbox
        self._on_output = on_output
        self._seen = Seen()

    def run(
        self,
        command: Line,
        cwd: Directory = None,
        stdin: Annotated[str | None, Meta(description="Text for its standard input.")] = None,
        timeout_s: Seconds = 120.0,
    ) -> str:
        """Run a shell command in the sandbox and wait for it. Returns exit code, stdout and stderr.

        The sandbox is a whole Linux computer: install packages, edit files, use git. Files and running
        processes stay between calls, the working directory and shell variables do not. Use `start` for
        servers, and for commands that take longer than the timeout.
        """
        try:
            result = self._sandbox.run(
                command,
                cwd=cwd,
                stdin=stdin,
                timeout_s=timeout_s,
                on_stdout=self._see,
                on_stderr=self._see,
                max_output_bytes=KEPT_BYTES,
            )
        except ExecTimeoutError:
            ended = f"killed after {timeout_s:g} s; use `start` for what takes longer"
            return f"{ended}\n{clipped(self._seen.text)}"
        return told(result)

    def start(self, command: Line, cwd: Directory = None) -> str:
        """Start a command in the background, such as a server or a long build, and return its pid at once.

        It runs on between calls, sleeps and wakes with the sandbox, and is copied by a fork. `output` returns
        its output.
        """
        process = self._sandbox.processes.start(command, cwd=cwd)
        process.close()
        return f"started with pid {process.pid}"

    def output(
        self,
        pid: Pid,
        wait_s: Annotated[float, Meta(description="Seconds to wait for its end.", ge=0, le=600)] = 0.0,
    ) -> str:
        """Return what a background command wrote (the last MiB is kept), and its exit code if it has ended."""
        process = self._sandbox.processes.attach(pid)
        try:
            result = process.wait(
                timeout_s=max(wait_s, _LEAST_WAIT_S),
                on_stdout=self._see,
                on_stderr=self._see,
                max_output_bytes=KEPT_BYTES,
            )
        except DeadlineError:
            return f"still running\n{clipped(self._seen.text)}"
        finally:
            process.close()
        return told(result)

    def stop(self, pid: Pid) -> str:
        """Kill a background command."""
        process = self._sandbox.processes.attach(pid)
        try:
            process.kill()
        finally:
            process.close()
        return f"killed {pid}"

    def processes(self) -> str:
        """List the background commands that run in the sandbox."""
        rows = self._sandbox.processes.list()
        return columns([(str(row.pid), row.user, clipped(" ".join(row.argv), 300)) for row in rows]) or "none"

    def _see(self, text: str) -> None:
        self._seen.add(text)
        if self._on_output is not None:
            self._on_output(text)
