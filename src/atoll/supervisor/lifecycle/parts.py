"""Bundles what the operations on sandboxes have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from atoll.errors import InternalError
from atoll.supervisor.lifecycle.crashes import Crashes
from atoll.supervisor.machines.enforcement import Means
from atoll.supervisor.machines.identity import hostname_of
from atoll.supervisor.machines.plans import RunPlan, VolumeMount
from atoll.supervisor.machines.running_machine import RunningMachine, RunningMachines
from atoll.supervisor.state.leases import Leases
from atoll.supervisor.state.operation_log import Operations
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.registry import Registry, Sandbox
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.storage.images import SupervisorImages
from atoll.supervisor.storage.layer_gc import LayerGC
from atoll.supervisor.storage.programs import Programs
from atoll.supervisor.storage.trash import Trash
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import Limits, SandboxInfo

if TYPE_CHECKING:
    from atoll.network import Link, Links
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.agent_client import Agents
    from atoll.supervisor.storage.volumes import Volumes


@dataclass(frozen=True, kw_only=True)
class Parts:
    """Holds one of each part that operations on sandboxes use.

    ``watch_paused`` is called with each sandbox that has just been paused, ``watch_limits`` with each that
    runs.

    Args:
        quotas: What teams may have.
        default_limits: Limits of a sandbox that asks for none.
        means: What this host can enforce limits with.
        nameserver: The name server that guests use.
        complete: Whether a layer can be stacked below another one, so that freezing saves a copy.
        engine_disks: Whether the engine keeps the disks of new sandboxes, because this host can mount no
            layers.
    """

    registry: Registry
    leases: Leases
    operations: Operations
    paths: Paths
    programs: Programs
    images: SupervisorImages
    layers: Layers
    links: Links
    agents: Agents
    running_machines: RunningMachines
    crashes: Crashes
    trash: Trash
    layer_gc: LayerGC
    volumes: Volumes
    watch_paused: Callable[[Sandbox, RunningMachine], None]
    watch_limits: Callable[[Sandbox, RunningMachine], None]
    quotas: TeamQuotas
    default_limits: Limits
    means: Means
    nameserver: str
    complete: bool
    engine_disks: bool = False

    def running_of(self, sandbox: Sandbox) -> RunningMachine:
        """The running machine of a sandbox that runs or is paused.

        Raises:
            InternalError: The sandbox has no running machine.
        """
        if sandbox.running is None:
            raise InternalError(f"sandbox {sandbox.sandbox_id} has no machine", sandbox_id=sandbox.sandbox_id)
        return sandbox.running

    def info(self, sandbox: Sandbox) -> SandboxInfo:
        """The information about a sandbox that clients get."""
        in_force = self.quotas.limits_within(sandbox.row)
        return msgspec.structs.replace(sandbox.info(), limits_in_force=in_force)

    def plan(
        self,
        row: SandboxRow,
        *,
        checkpoint: Path | None = None,
        read_ahead: bool = True,
        being_written: bool = False,
    ) -> RunPlan:
        """How to run the sandbox of a row. ``read_ahead`` and ``being_written`` are as in ``MachinePlan``."""
        return RunPlan(
            sandbox_id=row.sandbox_id,
            image=self.images.facts(row.image_digest).lowers,
            stack=row.stack,
            disk=self.paths.disk(row.sandbox_id, row.disk),
            hostname=hostname_of(row),
            limits=self.quotas.limits_within(row),
            keep_free_percent=self.quotas.keep_free_percent(row),
            versions=row.versions,
            checkpoint=checkpoint,
            read_ahead=read_ahead,
            being_written=being_written,
            engine_disk=row.engine_disk,
            volumes=self.mounts_of(row),
        )

    def mounts_of(self, row: SandboxRow) -> tuple[VolumeMount, ...]:
        """The directories that a sandbox mounts, and where, in an order that never changes."""
        return tuple(
            VolumeMount(self.paths.volume_data(row.volumes[path]), path) for path in sorted(row.volumes)
        )

    async def waiting_link(self, sandbox: Sandbox) -> Link | None:
        """The link that a sandbox without a machine kept, or None. An earlier supervisor may have left it."""
        link = sandbox.link
        if link is None and sandbox.row.link_id is not None:
            link = await self.links.adopt(sandbox.row.link_id)
        return link

    async def take_up(
        self,
        sandbox: Sandbox,
        running: RunningMachine,
        *,
        durable: bool = False,
        freeing: bool = False,
        **changes: object,
    ) -> None:
        """Make a running machine the one that runs a sandbox. ``freeing`` is as in ``Database.put``."""
        columns = {**machine_columns(running), "relayering": False, **changes}
        await self.registry.change(sandbox, durable=durable, freeing=freeing, state="running", **columns)
        self.attach(sandbox, running)

    def attach(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Do what ``take_up`` does, for a row that already says so."""
        sandbox.running, sandbox.link = running, None
        self.crashes.follow(sandbox, running)
        self.watch_limits(sandbox, running)


def machine_columns(running: RunningMachine) -> dict[str, Any]:
    """The columns of a row that describe its running machine."""
    return {
        "machine_id": running.machine.machine_id,
        "machine": running.machine.record(),
        "link_id": running.link.link_id,
    }
