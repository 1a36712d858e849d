"""Computes the disk growth that the kernel of a running sandbox may allow."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.engines import DiskGrowth
from atoll.types import Limits

if TYPE_CHECKING:
    from atoll.host import TreeUse
    from atoll.snapshots import Layers
    from atoll.supervisor.machines.sandbox_plan import SandboxPlan

_ENDLESS = 1 << 60


def growth_at_start(layers: Layers, plan: SandboxPlan) -> DiskGrowth | None:
    """What may be added to the disk that is mounted for a machine.

    None if there is no limit, or if the checkpoint's memory already holds it. That memory belongs to another
    disk if the disk's content was frozen into a layer below.
    """
    if plan.engine_disk or (plan.limits.disk_mib is None and plan.limits.files is None):
        return None
    if plan.checkpoint is not None and layers.outgrows(plan.disk, 0):
        return None
    return growth_left(plan.limits, layers.use(plan.disk))


def growth_left(limits: Limits, use: TreeUse) -> DiskGrowth:
    """The growth that a disk with this usage is still allowed."""
    size_bytes = _ENDLESS if limits.disk_mib is None else limits.disk_mib << 20
    files = _ENDLESS if limits.files is None else limits.files
    return DiskGrowth(size_bytes=size_bytes - use.size_bytes, files=files - use.files)
