"""Makes sandboxes of images: from the warm pool, or by booting a machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.supervisor.lifecycle.image_program import check_start
from atoll.supervisor.machines.enforcement import refuse_unheld
from atoll.supervisor.state.ids import new_id, new_machine_uid
from atoll.supervisor.state.leases import Columns
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.state.transitions import check_parts
from atoll.supervisor.storage.images import DEFAULT_IMAGE, ImageFacts
from atoll.types import ImageInfo, Progress, SandboxSpec, VolumeMount

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.callers import Caller
    from atoll.supervisor.lifecycle.first_machine import FirstMachines
    from atoll.supervisor.machines.enforcement import HostMeans
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.state.tasks import Tasks
    from atoll.supervisor.storage.binaries import Programs
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.tenants.quotas import TeamQuotas


@dataclass(kw_only=True, eq=False, repr=False)
class ImageCreation:
    """Makes sandboxes of images.

    Args:
        engine_disks: Whether the engine keeps the disks of new sandboxes.
    """

    inventory: Inventory
    operations: Operations
    programs: Programs
    images: SupervisorImages
    quotas: TeamQuotas
    means: HostMeans
    first_machines: FirstMachines
    engine_disks: bool
    tasks: Tasks

    async def create(
        self,
        spec: SandboxSpec,
        volumes: dict[str, VolumeMount],
        progress: Callable[[Progress], None],
        caller: Caller,
        made: Columns,
    ) -> Sandbox:
        """Get the image if it is not here yet, and make a sandbox of it. See ``Creation.create``.

        Args:
            made: Its id, and the columns that say for whom it is made.
        """
        if not spec.best_effort:
            means = self.means.of(self.programs.current, engine_disk=self.engine_disks)
            refuse_unheld(spec.limits, means)
        if self.engine_disks and not self.inventory.sandboxes():
            progress(Progress(step="the engine keeps the disks here; see `atoll doctor`"))
        sandbox_id = made["sandbox_id"]
        async with self.quotas.making(spec.team, {sandbox_id: spec.limits}, spec.lifecycle):
            info = await self._image(spec, progress, caller)
            facts = self.images.facts(info.digest)
            check_start(spec, facts)
            if spec.lifecycle.on_expiry == "stop":
                check_parts(engine_disk=self.engine_disks)
            async with self.operations.during(new_id(), "create"):
                row = self._row(sandbox_id, spec, info.name, facts, volumes).but(**made)
                return await self.first_machines.start(row, facts, caller, warm=from_pool(spec))

    async def _image(
        self, spec: SandboxSpec, progress: Callable[[Progress], None], caller: Caller
    ) -> ImageInfo:
        """Build or pull a missing image. That goes on if the caller leaves, because others may wait too."""
        image, team = spec.image or DEFAULT_IMAGE, spec.team
        having = self.quotas.within_disk(
            team, lambda left_bytes: self.images.have(image, progress, team, left_bytes)
        )
        return await caller.unless_left(self.tasks.spawn(having))

    def _row(
        self,
        sandbox_id: str,
        spec: SandboxSpec,
        image: str,
        facts: ImageFacts,
        volumes: dict[str, VolumeMount],
    ) -> SandboxRow:
        now_s = self.inventory.now_s()
        return SandboxRow(
            sandbox_id=sandbox_id,
            name=spec.name,
            image=image,
            image_digest=facts.digest,
            state="running",
            created_at=now_s,
            changed_at=now_s,
            started_at=now_s,
            env=spec.env,
            services=tuple(spec.services),
            metadata=spec.metadata,
            attributes=spec.attributes,
            ports=spec.ports,
            network=spec.network or "internet",
            limits=spec.limits,
            lifecycle=spec.lifecycle,
            on_crash=spec.on_crash or "reboot",
            volumes=volumes,
            team=spec.team,
            trust_host_ca=spec.trust_host_ca is not False,
            user=facts.user,
            cwd=facts.cwd,
            disk=FIRST_DISK,
            stack=(),
            generation=1,
            machine_uid=new_machine_uid(),
            versions=self.programs.current,
            engine_disk=self.engine_disks,
            start=bool(spec.start),
        )


def from_pool(spec: SandboxSpec) -> bool:
    """Whether a warm machine, with default limits and no volumes, satisfies the spec."""
    return not spec.limits.given() and spec.trust_host_ca is not False and not spec.volumes
