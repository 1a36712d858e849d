"""Makes sandboxes of snapshots: each continues from the snapshot's memory and disk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.errors import ImageNotFoundError, InvalidSpecError
from atoll.host import to_the_end
from atoll.images import image_name
from atoll.policy import without_own
from atoll.supervisor.lifecycle.services import joined_services
from atoll.supervisor.machines.enforcement import refuse_unheld
from atoll.supervisor.state.ids import new_id, new_machine_uid
from atoll.supervisor.state.leases import Columns
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.transitions import check_parts
from atoll.types.internal import ORIGIN_ATTRIBUTE

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.attachment import Attachment
    from atoll.supervisor.lifecycle.clone import Clones
    from atoll.supervisor.lifecycle.crash_checkpoint import CrashCheckpoints
    from atoll.supervisor.machines.enforcement import HostMeans
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.operation_log import Operations
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.types import EgressPolicy, SandboxSpec, VolumeMount


@dataclass(kw_only=True, eq=False, repr=False)
class SnapshotCreation:
    """Makes sandboxes of snapshots."""

    inventory: Inventory
    operations: Operations
    paths: Paths
    quotas: TeamQuotas
    means: HostMeans
    clones: Clones
    attachment: Attachment
    crash_checkpoints: CrashCheckpoints

    async def create(
        self, spec: SandboxSpec, ref: str, volumes: dict[str, VolumeMount], made: Columns
    ) -> Sandbox:
        """Make a sandbox that continues from the snapshot ``ref``. See ``Creation.create``.

        Args:
            made: Its id, and the columns that say for whom it is made.
        """
        async with self.operations.during(new_id(), "create"):
            snapshot = self.inventory.snapshot(ref)
            row = self._row(made["sandbox_id"], spec, snapshot, volumes).but(**made)
            checkpoint = self.paths.snapshot_checkpoint(snapshot.snapshot_id)
            with self.inventory.pins.during(row.sandbox_id, snapshot.snapshot_id, *snapshot.stack):
                async with self.quotas.making(row.team, {row.sandbox_id: row.limits}, row.lifecycle):
                    sandbox, running = await self.clones.clone(row, checkpoint, snapshot.env)
                    try:
                        await self.inventory.add(sandbox)
                    except BaseException:
                        await to_the_end(self.clones.undo(sandbox, running))
                        raise
                self.crash_checkpoints.keep(sandbox.row, checkpoint)
            self.attachment.attach(sandbox, running)
            return sandbox

    def _row(
        self, sandbox_id: str, spec: SandboxSpec, snapshot: SnapshotRow, volumes: dict[str, VolumeMount]
    ) -> SandboxRow:
        if spec.image is not None and image_name(spec.image) != snapshot.image:
            raise ImageNotFoundError(
                f"snapshot {snapshot.called!r} was made from image {snapshot.image!r}, not {spec.image!r}",
                hint="leave image out",
            )
        check_like(spec, snapshot)
        limits = spec.limits.over(snapshot.limits)
        if not spec.best_effort:
            refuse_unheld(limits, self.means.of(snapshot.versions, engine_disk=snapshot.engine_disk))
        if spec.lifecycle.on_expiry == "stop":
            check_parts(engine_disk=snapshot.engine_disk)
        now_s = self.inventory.now_s()
        own = {
            "generation": snapshot.generation + 1,
            "env": {**snapshot.env, **spec.env},
            "services": joined_services(snapshot.services, spec.services),
            "network": spec.network or _inherited(snapshot, spec.team),
            "limits": limits,
            "on_crash": spec.on_crash or snapshot.on_crash,
            "volumes": volumes,
            "team": spec.team,
        }
        return SandboxRow(
            **{**snapshot.setup(), **own},
            sandbox_id=sandbox_id,
            name=spec.name,
            state="running",
            created_at=now_s,
            changed_at=now_s,
            started_at=now_s,
            metadata=spec.metadata,
            attributes={**spec.attributes, **_origin_of(snapshot)},
            ports=spec.ports,
            lifecycle=spec.lifecycle,
            disk=FIRST_DISK,
            machine_uid=new_machine_uid(),
            snapshot_id=snapshot.snapshot_id,
        )


def _inherited(snapshot: SnapshotRow, team: str | None) -> EgressPolicy:
    return snapshot.network if snapshot.team == team else without_own(snapshot.network)


def _origin_of(snapshot: SnapshotRow) -> dict[str, str]:
    """Return the attribute by which a server holds the sandbox, and its forks, to the snapshot's network."""
    return {} if snapshot.network == "internet" else {ORIGIN_ATTRIBUTE: snapshot.snapshot_id}


def check_like(spec: SandboxSpec, snapshot: SnapshotRow) -> None:
    """Refuse values that were fixed when the snapshot's sandbox was made.

    Raises:
        InvalidSpecError: Names the value.
    """
    for name, asked, settled in (
        ("start", spec.start, snapshot.start),
        ("trust_host_ca", spec.trust_host_ca, snapshot.trust_host_ca),
    ):
        if asked is not None and asked != settled:
            raise InvalidSpecError(
                f"{name} is {settled}, as fixed when the snapshot's sandbox was created",
                hint="leave it out, or create a sandbox from an image",
            )
