"""Erases unused images of a team: the team can pull them again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.warm_pool import WarmPool
    from atoll.supervisor.storage.images import SupervisorImages


class ImageRelease:
    """Erases the images that a team pulled and nothing needs.

    Args:
        images: The images.
        pool: Warm machines, which keep images in use.
    """

    def __init__(self, images: SupervisorImages, pool: WarmPool) -> None:
        self._images = images
        self._pool = pool

    async def one(self, team: str) -> bool:
        """Erase the unused image of a team that was requested longest ago, and return whether there was one."""
        for digest in await self._images.unused_by(team):
            await self._pool.forget(digest)
            if await self._images.give_up(digest):
                return True
        return False

    async def all(self, team: str) -> None:
        """Erase all unused images of a team."""
        while await self.one(team):
            pass
