"""Tools that run programs."""

from __future__ import annotations

from typing import Annotated, Any

import anyio
from mcp.server.mcpserver import Context
from pydantic import Field

from atoll.errors import AtollError, DeadlineError, ExecTimeoutError
from atoll.mcp.results import KEPT_BYTES, told
from atoll.mcp.text import clipped, columns
from atoll.mcp.tools.adding import Tools, reporter
from atoll.mcp.tools.arguments import Line, Which
from atoll.mcp.workplace import Workplace
from atoll.types import ExecResult

_TELL_EVERY_S = 2.0
_LAST_CHARACTERS = 200

Seconds = Annotated[float, Field(description="Seconds until it is killed.", gt=0, le=3600)]
Pid = Annotated[int, Field(description="The pid that `start` or `processes` gave.", ge=1)]
Directory = Annotated[str | None, Field(description="Directory to run in; default: the user's home.")]


def add(tools: Tools, workplace: Workplace) -> None:
    """Add the tools."""
    found = Commands(workplace)
    tools.add(found.run, title="Run a command")
    tools.add(found.start, title="Start a background command")
    tools.add(found.output, title="Output of a background command", reads=True)
    tools.add(found.stop, title="Stop a background command")
    tools.add(found.processes, title="List background commands", reads=True)


class Commands:
    """Runs programs.

    Args:
        workplace: Has the sandboxes.
    """

    def __init__(self, workplace: Workplace) -> None:
        self._workplace = workplace

    async def run(
        self,
        command: Line,
        ctx: Context[Any, Any],
        sandbox: Which = None,
        cwd: Directory = None,
        stdin: Annotated[str | None, Field(description="Text for its standard input.")] = None,
        timeout_s: Seconds = 120.0,
    ) -> str:
        """Run a shell command in the sandbox and wait for it. Returns exit code, stdout and stderr.

        The sandbox is a whole Linux computer: install packages, edit files, use git. Files and running
        processes stay between calls, the working directory and shell variables do not. Use `start` for
        servers and for what takes longer than the timeout.
        """
        used = await self._workplace.sandbox(sandbox, busy_s=timeout_s, on_progress=reporter(ctx))
        seen = _Seen()
        outcome: ExecResult | AtollError | None = None
        async with anyio.create_task_group() as group:
            group.start_soon(seen.tell, ctx)
            try:
                outcome = await used.run(
                    command,
                    cwd=cwd,
                    stdin=stdin,
                    timeout_s=timeout_s,
                    on_stdout=seen.add,
                    on_stderr=seen.add,
                    max_output_bytes=KEPT_BYTES,
                )
            except AtollError as error:  # raised below: the group would wrap it
                outcome = error
            group.cancel_scope.cancel()
        if isinstance(outcome, ExecTimeoutError):
            return f"killed after {timeout_s:g} s; use `start` for what takes longer\n{clipped(seen.text)}"
        if isinstance(outcome, AtollError):
            raise outcome
        return "" if outcome is None else told(outcome)

    async def start(self, command: Line, sandbox: Which = None, cwd: Directory = None) -> str:
        """Start a command in the background, such as a server or a long build, and return its pid at once.

        It runs on between calls, sleeps and wakes with the sandbox, and is copied by a fork. `output` returns
        what it wrote.
        """
        used = await self._workplace.sandbox(sandbox)
        process = await used.start(command, cwd=cwd)
        process.close()
        return f"started with pid {process.pid}"

    async def output(
        self,
        pid: Pid,
        sandbox: Which = None,
        wait_s: Annotated[float, Field(description="Seconds to wait for its end.", ge=0, le=600)] = 0.0,
    ) -> str:
        """Return what a background command wrote (the last MiB is kept), and its exit code if it has ended."""
        used = await self._workplace.sandbox(sandbox, busy_s=wait_s)
        seen = _Seen()
        process = await used.attach(pid)
        try:
            result = await process.wait(
                timeout_s=max(wait_s, 0.2),
                on_stdout=seen.add,
                on_stderr=seen.add,
                max_output_bytes=KEPT_BYTES,
            )
        except DeadlineError:
            return f"still running\n{clipped(seen.text)}"
        finally:
            process.close()
        return told(result)

    async def stop(self, pid: Pid, sandbox: Which = None) -> str:
        """Kill a background command."""
        process = await (await self._workplace.sandbox(sandbox)).attach(pid)
        try:
            await process.kill()
        finally:
            process.close()
        return f"killed {pid}"

    async def processes(self, sandbox: Which = None) -> str:
        """List the background commands that run in the sandbox."""
        rows = await (await self._workplace.sandbox(sandbox)).processes()
        return columns([(str(row.pid), row.user, clipped(" ".join(row.argv), 300)) for row in rows]) or "none"


class _Seen:
    """What a program has written so far, for a client that waits."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, text: str) -> None:
        self.text = (self.text + text)[-KEPT_BYTES:]

    async def tell(self, ctx: Context[Any, Any]) -> None:
        """Report the last line every few seconds."""
        passed = 0.0
        while True:
            await anyio.sleep(_TELL_EVERY_S)
            passed += _TELL_EVERY_S
            lines = self.text[-2 * _LAST_CHARACTERS :].strip().splitlines()
            await ctx.report_progress(passed, None, lines[-1][-_LAST_CHARACTERS:] if lines else "running")
