"""Gets and deletes images for clients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.warm_pool import WarmPool
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.types import ImageAccess, ImageInfo, Progress


@dataclass(eq=False, repr=False)
class ImageRequests:
    """Gets and deletes images."""

    images: SupervisorImages
    pool: WarmPool
    quotas: TeamQuotas

    async def ensure(
        self, name: str, report: Callable[[Progress], None], *, newest: bool, access: ImageAccess
    ) -> ImageInfo:
        """Build or pull an image within its team's quota. See ``SupervisorImages.ensure``."""
        return await self.quotas.within_disk(
            access.team,
            lambda left_bytes: self.images.ensure(
                name, report, newest=newest, access=access, most_bytes=left_bytes
            ),
        )

    async def delete(self, name: str) -> None:
        """Forget a name, and erase the image if that was its last name.

        Raises:
            ImageNotFoundError: There is no such image.
            InUseError: A sandbox or snapshot uses it.
        """
        await self.pool.forget(self.images.info(name).digest)
        await self.images.remove(name)
