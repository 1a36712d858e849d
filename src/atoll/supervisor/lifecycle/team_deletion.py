"""Deletes teams, with all that only they can reach."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from atoll.supervisor.state.references import owned_by

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.image_release import ImageRelease
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.storage.template_rows import TemplateRows
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.keys import Keys
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.supervisor.tenants.secrets import Secrets
    from atoll.supervisor.tenants.teams import Teams


@dataclass(kw_only=True, eq=False, repr=False)
class TeamDeletion:
    """Deletes teams."""

    teams: Teams
    keys: Keys
    secrets: Secrets
    inventory: Inventory
    quotas: TeamQuotas
    templates: TemplateRows
    volumes: Volumes
    images: SupervisorImages
    image_release: ImageRelease

    async def delete(self, name: str) -> None:
        """Delete a team that owns nothing any more, its keys and secrets, and its images that nothing needs.

        Raises:
            TeamNotFoundError: There is no such team.
            InUseError: The team owns something; the message names it.
        """
        await self.teams.delete(name, lambda: self._owned_by(name), lambda: self._forget(name))

    def _owned_by(self, team: str) -> list[str]:
        return [
            *owned_by(self.inventory, team),
            *self.quotas.booked(team),
            *self.templates.owned_by(team),
            *self.volumes.owned_by(team),
        ]

    async def _forget(self, team: str) -> None:
        await self.keys.forget_team(team)
        await self.images.forget_team(team)
        await self.image_release.all(team)
        # Last: if something before fails, the team stays, and must not have lost them.
        await self.secrets.forget_team(team)
