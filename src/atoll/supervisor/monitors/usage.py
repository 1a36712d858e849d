"""Measures the usage of sandboxes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import AtollError
from atoll.host import tree_bytes
from atoll.supervisor.machines.enforcement import held_of
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import SandboxStats

if TYPE_CHECKING:
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.machines.enforcement import HostMeans
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.tenants.quotas import TeamQuotas


@dataclass(kw_only=True, eq=False, repr=False)
class Usage:
    """Asks the host and the guest for usage, and wakes no sandbox."""

    quotas: TeamQuotas
    means: HostMeans
    paths: Paths
    layers: Layers
    agents: Agents

    async def of(self, sandbox: Sandbox) -> SandboxStats:
        """A sandbox's current usage."""
        disk_bytes = await asyncio.to_thread(self._disk_bytes, sandbox.row)
        row = sandbox.row
        limits = self.quotas.limits_within(row)
        means = self.means.of(row.versions, engine_disk=row.engine_disk)
        held: dict[str, str] = {**held_of(limits, means)}
        running = sandbox.running
        if running is None:
            return SandboxStats(
                state=sandbox.row.state,
                cpu_s=None,
                memory_bytes=0,
                memory_limit_bytes=None,
                disk_bytes=disk_bytes,
                processes=0,
                received_bytes=0,
                sent_bytes=0,
                limits=limits,
                held=held,
            )
        machine = await running.alive(running.machine.stats(), sandbox.sandbox_id)
        processes = None
        if sandbox.row.state == "running":
            with suppress(AtollError):  # the rest of the statistics needs no answer from the guest
                before = running.link.payload_bytes()
                processes = (
                    await running.alive(self.agents.stats(running.link), sandbox.sandbox_id)
                ).processes
                running.own_bytes += running.link.payload_bytes() - before
        received, sent = running.link.traffic()
        if machine.disk_bytes is not None:
            disk_bytes = machine.disk_bytes
        return SandboxStats(
            state=sandbox.row.state,
            cpu_s=machine.cpu_s,
            memory_bytes=machine.memory_bytes,
            memory_limit_bytes=machine.memory_limit_bytes,
            disk_bytes=disk_bytes,
            processes=processes,
            received_bytes=received,
            sent_bytes=sent,
            limits=limits,
            held=held,
        )

    def _disk_bytes(self, row: SandboxRow) -> int:
        paths = self.paths
        if not row.engine_disk:
            return self.layers.sizes_changed(paths.disk(row.sandbox_id, row.disk))
        checkpoint = paths.checkpoint(row.sandbox_id)
        return tree_bytes(checkpoint) if checkpoint.is_dir() else 0
