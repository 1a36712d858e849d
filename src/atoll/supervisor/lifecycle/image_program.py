"""Runs the program of an image where that was asked for: an ordinary process, beside process 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.errors import InvalidSpecError
from atoll.guest import Program

if TYPE_CHECKING:
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.state.running_machine import RunningMachine
    from atoll.supervisor.storage.images import ImageFacts
    from atoll.types import SandboxSpec

TAG = "image"


def check_start(spec: SandboxSpec, facts: ImageFacts) -> None:
    """Refuse to start an image's program if the image has none.

    Raises:
        InvalidSpecError: The image has no program.
    """
    if spec.start and not facts.argv:
        raise InvalidSpecError(
            f"the image {spec.image or 'base'} has no program to start",
            hint="leave start out, and run one with `exec`",
        )


async def start_program_of(
    row: SandboxRow, facts: ImageFacts, running: RunningMachine, agents: Agents
) -> None:
    """Start the program of the sandbox's image in a machine that has just booted, if its row asks for it.

    Raises:
        AtollError: The program cannot be started.
    """
    if row.start and facts.argv:
        program = Program(argv=facts.argv, tag=TAG)
        await running.alive(agents.start(running.link, program), row.sandbox_id)
