"""Boots machines for sandboxes, and starts the programs of their images in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.supervisor.lifecycle.image_program import start_program_of
from atoll.supervisor.machines.identity import first_init

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.run_plans import RunPlans
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.storage.images import SupervisorImages


class Boots:
    """Boots machines.

    Args:
        images: The images of the sandboxes.
        plans: How machines run.
        running_machines: Starts the machines.
        agents: Calls the guests' agents.
        nameserver: The name server that guests use.
    """

    def __init__(
        self,
        *,
        images: SupervisorImages,
        plans: RunPlans,
        running_machines: RunningMachines,
        agents: Agents,
        nameserver: str,
    ) -> None:
        self._images = images
        self._plans = plans
        self._running_machines = running_machines
        self._agents = agents
        self._nameserver = nameserver

    async def boot(self, row: SandboxRow, link: Link) -> RunningMachine:
        """Boot the sandbox of a row from its disk.

        Raises:
            EngineError: The machine did not start.
            AtollError: Its agent did not answer.

        Postcondition: on any exception nothing runs. The link stays the caller's.
        """
        wanted = first_init(row, self._images.facts(row.image_digest), self._nameserver)
        return await self._running_machines.begin(self._plans.of(row), link, wanted)

    async def start_program(self, row: SandboxRow, running: RunningMachine) -> None:
        """Start the program of the image in a machine that has just booted, if the row asks for it.

        Raises:
            AtollError: The program cannot be started.
        """
        await start_program_of(row, self._images.facts(row.image_digest), running, self._agents)
