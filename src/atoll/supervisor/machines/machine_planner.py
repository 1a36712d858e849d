"""Mounts the disk of a sandbox, and makes the plan for its engine to start a machine on it."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from atoll.engines import Bind, MachinePlan
from atoll.errors import HostError
from atoll.supervisor.machines.prestarted import agent_binds
from atoll.supervisor.machines.sandbox_plan import SandboxPlan, changes_of, earlier_pages_directory
from atoll.supervisor.storage.binaries import AGENT_ARGV, Programs

if TYPE_CHECKING:
    from atoll.network import Link
    from atoll.snapshots import ImageRoots, Layers


@dataclass(eq=False, repr=False)
class MachinePlanner:
    """Mounts disks, and makes an engine's plan of a machine from the plan of a sandbox.

    Args:
        run: Where machines have their own directories.
    """

    run: Path
    _: KW_ONLY
    programs: Programs
    layers: Layers
    image_roots: ImageRoots

    def make(self, plan: SandboxPlan, machine_id: str, link: Link) -> MachinePlan:
        """Mount the disk, unless it is mounted, and say what to start on it. This blocks.

        Raises:
            HostError: The image or a volume is missing, or the kernel refuses the mount.
        """
        if not plan.image:
            raise HostError(
                f"the image of sandbox {plan.sandbox_id} is missing",
                hint="the home has lost files: restore it from a backup",
            )
        volumes = (
            Bind(
                source=str(_there(one.source)),
                target=one.target,
                read_only=one.read_only,
                shared=True,
                limited=one.limited,
            )
            for one in plan.volumes
        )
        binds = (*agent_binds(self.programs, plan.versions), *volumes)
        return MachinePlan(
            machine_id=machine_id,
            state_dir=self.run / machine_id,
            rootfs=self._image_root(plan, binds) if plan.engine_disk else self._root(plan),
            netns=link.netns,
            argv=AGENT_ARGV,
            changes=changes_of(plan.disk) if plan.engine_disk else None,
            hostname=plan.hostname,
            binds=binds,
            checkpoint=plan.checkpoint,
            read_ahead=plan.read_ahead,
            being_written=plan.being_written,
            limits=plan.limits,
            keep_free_percent=plan.keep_free_percent,
            earlier_pages=earlier_pages_directory(plan.disk, machine_id) if not plan.engine_disk else None,
        )

    def _root(self, plan: SandboxPlan) -> Path:
        return self.layers.mount(plan.image, plan.stack, plan.disk)

    def _image_root(self, plan: SandboxPlan, binds: tuple[Bind, ...]) -> Path:
        if len(plan.image) > 1:
            raise HostError(
                "the image was pulled as separate layers, which disks kept by the engine cannot use",
                hint="delete it with `atoll image delete`, and pull it again",
            )
        changes_of(plan.disk).mkdir(mode=0o700, parents=True, exist_ok=True)
        return self.image_roots.mount(plan.image[0], [bind.target for bind in binds], plan.disk)


def _there(volume: Path) -> Path:
    """The directory with links resolved: engines follow none, and a user may link volumes from elsewhere."""
    if not volume.is_dir():
        raise HostError(
            f"the volume {volume.parent} is missing",
            hint="restore its directory from a backup, or mount the disk that has it",
        )
    return volume.resolve()
