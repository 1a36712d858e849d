"""Erases unused images of a team: the team can pull them again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.warm_pool import WarmPool
    from atoll.supervisor.storage.images import SupervisorImages


@dataclass(eq=False, repr=False)
class ImageRelease:
    """Erases the images that a team pulled and nothing needs."""

    images: SupervisorImages
    pool: WarmPool

    async def one(self, team: str) -> bool:
        """Erase the unused image of a team that was requested longest ago, and return whether there was one."""
        for digest in await self.images.unused_by(team):
            await self.pool.forget(digest)
            if await self.images.give_up(digest):
                return True
        return False

    async def all(self, team: str) -> None:
        """Erase all unused images of a team."""
        while await self.one(team):
            pass
