"""Runs the start commands of templates again after a boot from the disk has ended them."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.guest import Program

if TYPE_CHECKING:
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.types import StartCommand

TAG = "start"
# A wake waits at most this long, however many commands there are: its caller wants to look for the fault.
_READY_S = 20.0
_TRY_READY_MS = 5_000
_BETWEEN_S = 0.2
_log = logging.getLogger(__name__)


async def run_start_commands(row: SandboxRow, running: RunningMachine, agents: Agents) -> None:
    """Run the start commands of a sandbox that has just booted, and wait for a while until they are ready.

    A failure is logged, and the sandbox runs all the same.
    """
    try:
        async with asyncio.timeout(_READY_S):
            for command in row.start_commands:
                program = Program(line=command.start, user=command.user, cwd=command.cwd, tag=TAG)
                await running.alive(agents.start(running.link, program), row.sandbox_id)
            for command in row.start_commands:
                await running.alive(_ready(command, running, agents), row.sandbox_id)
    except (AtollError, OSError) as error:
        told = str(error) or f"it was not ready within {_READY_S:g} s"
        _log.warning("a start command of sandbox %s did not start: %s", row.sandbox_id, told)


async def _ready(command: StartCommand, running: RunningMachine, agents: Agents) -> None:
    if command.ready is None:
        return
    # Discard the output of the check.
    line = f"(\n{command.ready}\n) >/dev/null 2>&1"
    program = Program(line=line, user=command.user, cwd=command.cwd, timeout_ms=_TRY_READY_MS)
    while True:
        if await agents.ends_well(running.link, program):
            return
        await asyncio.sleep(_BETWEEN_S)
