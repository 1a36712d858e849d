"""Deletes teams, with all that only they can reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from atoll.supervisor.state.references import owned_by

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.image_release import ImageRelease
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.storage.images import SupervisorImages
    from atoll.supervisor.storage.template_registry import TemplateRegistry
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.keys import Keys
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.supervisor.tenants.secrets import Secrets
    from atoll.supervisor.tenants.teams import Teams


class TeamDeletion:
    """Deletes teams.

    Args:
        teams: The teams.
        keys: Their keys.
        secrets: Their secrets.
        registry: The sandboxes and snapshots that they may own.
        quotas: Knows what is being made for them.
        templates: The templates that they may own.
        volumes: The volumes that they may own.
        images: The images that they pulled.
        image_release: Erases those images.
    """

    def __init__(
        self,
        *,
        teams: Teams,
        keys: Keys,
        secrets: Secrets,
        registry: Registry,
        quotas: TeamQuotas,
        templates: TemplateRegistry,
        volumes: Volumes,
        images: SupervisorImages,
        image_release: ImageRelease,
    ) -> None:
        self._teams = teams
        self._keys = keys
        self._secrets = secrets
        self._registry = registry
        self._quotas = quotas
        self._templates = templates
        self._volumes = volumes
        self._images = images
        self._image_release = image_release

    async def delete(self, name: str) -> None:
        """Delete a team that owns nothing any more, its keys and secrets, and its images that nothing needs.

        Raises:
            TeamNotFoundError: There is no such team.
            InUseError: The team owns something; the message says what.
        """
        await self._teams.delete(name, lambda: self._owned_by(name), lambda: self._forget(name))

    def _owned_by(self, team: str) -> list[str]:
        return [
            *owned_by(self._registry, team),
            *self._quotas.booked(team),
            *self._templates.owned_by(team),
            *self._volumes.owned_by(team),
        ]

    async def _forget(self, team: str) -> None:
        await self._keys.forget_team(team)
        await self._images.forget_team(team)
        await self._image_release.all(team)
        # Last: if something before fails, the team stays, and must not have lost them.
        await self._secrets.forget_team(team)
