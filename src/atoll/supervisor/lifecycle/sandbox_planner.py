"""Plans what the next machine of a sandbox runs, from the sandbox's row."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from atoll.errors import VolumeNotFoundError
from atoll.supervisor.machines.identity import hostname_of
from atoll.supervisor.machines.sandbox_plan import SandboxPlan, VolumeBind
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.storage.images import ImageFacts, SupervisorImages
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.types import VolumeMount


@dataclass(eq=False, repr=False)
class SandboxPlanner:
    """Makes the plans of sandboxes."""

    images: SupervisorImages
    paths: Paths
    quotas: TeamQuotas
    volumes: Volumes

    def of(
        self,
        row: SandboxRow,
        *,
        checkpoint: Path | None = None,
        read_ahead: bool = True,
        being_written: bool = False,
    ) -> SandboxPlan:
        """How to run the sandbox of a row. ``read_ahead`` and ``being_written`` are as in ``MachinePlan``."""
        return SandboxPlan(
            sandbox_id=row.sandbox_id,
            image=self.image(row).lowers,
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
            volumes=self._mounts(row),
        )

    def image(self, row: SandboxRow | SnapshotRow) -> ImageFacts:
        """The image facts for a row's sandbox."""
        return self.images.facts(row.image_digest)

    def _mounts(self, row: SandboxRow) -> tuple[VolumeBind, ...]:
        """The directories that a sandbox mounts, and where, in an order that never changes."""
        return tuple(
            VolumeBind(self.paths.volume_data(mount.volume), path, mount.read_only, self._is_limited(mount))
            for path, mount in sorted(row.volumes.items())
        )

    def _is_limited(self, mount: VolumeMount) -> bool:
        if mount.read_only:
            return False
        try:
            return self.volumes.get(mount.volume).quota_mib is not None
        except VolumeNotFoundError:  # the mount reports it
            return False
