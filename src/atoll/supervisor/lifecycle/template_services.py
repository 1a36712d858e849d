"""Starts a template's services again after a boot from the disk has ended them."""

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
    from atoll.types import Service

TAG = "service"
# A wake waits no longer than this, however many services there are: its caller wants to see what is wrong.
_READY_S = 20.0
_TRY_READY_MS = 5_000
_BETWEEN_S = 0.2
_log = logging.getLogger(__name__)


async def start_services(row: SandboxRow, running: RunningMachine, agents: Agents) -> None:
    """Start the services of a sandbox that has just booted, and wait for a while until they are ready.

    A failure is logged, and the sandbox runs all the same.
    """
    try:
        async with asyncio.timeout(_READY_S):
            for service in row.services:
                program = Program(line=service.start, user=service.user, cwd=service.cwd, tag=TAG)
                await running.alive(agents.start(running.link, program), row.sandbox_id)
            for service in row.services:
                await running.alive(_ready(service, running, agents), row.sandbox_id)
    except (AtollError, OSError) as error:
        told = str(error) or f"it was not ready within {_READY_S:g} s"
        _log.warning("a service of sandbox %s did not start: %s", row.sandbox_id, told)


async def _ready(service: Service, running: RunningMachine, agents: Agents) -> None:
    if service.ready is None:
        return
    # Discard what the check prints.
    line = f"(\n{service.ready}\n) >/dev/null 2>&1"
    program = Program(line=line, user=service.user, cwd=service.cwd, timeout_ms=_TRY_READY_MS)
    while True:
        if await agents.ends_well(running.link, program):
            return
        await asyncio.sleep(_BETWEEN_S)
