"""Boots sandboxes from their disks, like a computer that was switched off."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from atoll.errors import AtollError, HostError
from atoll.host import to_the_end
from atoll.supervisor.lifecycle.image_program import start_program_of
from atoll.supervisor.lifecycle.template_services import start_services
from atoll.supervisor.machines.identity import first_init

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.supervisor.lifecycle.parts import Parts
    from atoll.supervisor.state.leases import Columns
    from atoll.supervisor.state.registry import Sandbox
    from atoll.supervisor.storage.compaction import Compaction

_log = logging.getLogger(__name__)


class Starts:
    """Boots sandboxes. The caller holds the sandbox's lock.

    Args:
        parts: What sandboxes are made of.
        compaction: Shortens long chains of layers.
    """

    def __init__(self, parts: Parts, compaction: Compaction) -> None:
        self._parts = parts
        self._compaction = compaction

    async def boot(self, sandbox: Sandbox, columns: Columns) -> None:
        """Boot a sandbox that has no machine from its disk, and change ``columns`` of its row with it."""
        self.assert_disk(sandbox)
        await self._compaction.shorten(sandbox)
        row = sandbox.row.but(generation=sandbox.row.generation + 1, versions=self._parts.programs.current)
        image = self._parts.images.facts(row.image_digest)
        link, _ = await self.link_of(sandbox)
        try:
            wanted = first_init(row, image, self._parts.nameserver)
            running = await self._parts.running_machines.begin(self._parts.plan(row), link, wanted)
            try:
                changes = {
                    **columns,
                    "generation": row.generation,
                    "versions": row.versions,
                    "reason": None,
                    "has_memory": True,
                }
                await self._parts.take_up(sandbox, running, **changes)
            except BaseException:
                await to_the_end(self._parts.running_machines.end(running))
                raise
        except BaseException:
            await to_the_end(link.aclose())
            raise
        try:
            await start_program_of(row, image, running, self._parts.agents)
        except AtollError as error:
            # The sandbox has started; its owner can find out what the program lacks.
            _log.warning("the program of the image of %s did not start: %s", sandbox.sandbox_id, error)
        await start_services(row, running, self._parts.agents)

    def assert_disk(self, sandbox: Sandbox) -> None:
        """Refuse to start if the disk is missing: an empty one in its place would hide the loss of files."""
        disk = self._parts.paths.disk(sandbox.sandbox_id, sandbox.row.disk)
        if not disk.is_dir():
            raise HostError(
                f"the disk of sandbox {sandbox.sandbox_id} is missing: {disk}",
                hint="restore the home from a backup, roll the sandbox back to a snapshot, or kill it",
                sandbox_id=sandbox.sandbox_id,
            )

    async def link_of(self, sandbox: Sandbox) -> tuple[Link, bool]:
        """The link that waits for the sandbox and True, or a new link and False."""
        link = await self._parts.waiting_link(sandbox)
        kept = link is not None
        if link is None:
            link = await self._parts.links.take()
        else:
            await link.prepare()
        sandbox.link = None
        link.set_policy(sandbox.row.network)
        return link, kept
