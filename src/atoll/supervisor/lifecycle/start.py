"""Boots sandboxes from their disks, like a computer that was switched off."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import to_the_end
from atoll.supervisor.integrity.consistency import assert_disk
from atoll.supervisor.lifecycle.start_commands import run_start_commands

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.boot import Boots
    from atoll.supervisor.lifecycle.sandbox_links import SandboxLinks
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.running_machines import RunningMachines
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.binaries import Programs
    from atoll.supervisor.storage.compaction import Compaction

_log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class Starts:
    """Boots existing sandboxes. The caller holds the sandbox's lock."""

    paths: Paths
    programs: Programs
    boots: Boots
    sandbox_links: SandboxLinks
    running_machines: RunningMachines
    attachment: Attachment
    agents: Agents
    compaction: Compaction

    async def boot(self, sandbox: Sandbox, columns: Columns) -> None:
        """Boot a sandbox that has no machine from its disk, and change ``columns`` of its row with it.

        Raises:
            HostError: The disk is missing.
        """
        assert_disk(self.paths.disk(sandbox.sandbox_id, sandbox.row.disk), sandbox.sandbox_id)
        await self.compaction.shorten(sandbox)
        row = sandbox.row.but(generation=sandbox.row.generation + 1, versions=self.programs.current)
        link, _ = await self.sandbox_links.take(sandbox)
        try:
            running = await self.boots.boot(row, link)
            try:
                changes = {
                    **columns,
                    "generation": row.generation,
                    "versions": row.versions,
                    "reason": None,
                    "has_memory": True,
                }
                await self.attachment.take_up(sandbox, running, **changes)
            except BaseException:
                await to_the_end(self.running_machines.end(running))
                raise
        except BaseException:
            await to_the_end(link.aclose())
            raise
        try:
            await self.boots.start_program(row, running)
        except AtollError as error:
            # The sandbox has started, so its owner can look for the program's problem.
            _log.warning("the image's program in sandbox %s did not start: %s", sandbox.sandbox_id, error)
        await run_start_commands(row, running, self.agents)
