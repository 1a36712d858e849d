"""Boots machines for sandboxes, and starts the programs of their images in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.supervisor.lifecycle.image_program import start_program_of
from atoll.supervisor.machines.identity import first_init

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.sandbox_planner import SandboxPlanner
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.storage.images import SupervisorImages


@dataclass(kw_only=True, eq=False, repr=False)
class Boots:
    """Boots machines.

    Args:
        nameserver: The name server that guests use.
    """

    images: SupervisorImages
    sandbox_planner: SandboxPlanner
    running_machines: RunningMachines
    agents: Agents
    nameserver: str

    async def boot(self, row: SandboxRow, link: Link) -> RunningMachine:
        """Boot the sandbox of a row from its disk.

        Raises:
            EngineError: The machine did not start.
            AtollError: Its agent did not answer.

        Postcondition: on any exception nothing runs. The link stays the caller's.
        """
        wanted = first_init(row, self.images.facts(row.image_digest), self.nameserver)
        return await self.running_machines.begin(self.sandbox_planner.of(row), link, wanted)

    async def start_program(self, row: SandboxRow, running: RunningMachine) -> None:
        """Start the program of the image in a machine that has just booted, if the row asks for it.

        Raises:
            AtollError: The program cannot be started.
        """
        await start_program_of(row, self.images.facts(row.image_digest), running, self.agents)
