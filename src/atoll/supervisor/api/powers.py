"""The route of a sandbox's powers: what it could do at worst."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from atoll.policy import PowerFacts, powers_of
from atoll.supervisor.api.reply import json_answer
from atoll.supervisor.lifecycle.home_hooks import HomeHooks
from atoll.supervisor.lifecycle.info import info_of
from atoll.supervisor.lifecycle.package_registries import PackageRegistries
from atoll.supervisor.monitors.idle_monitor import IdleMonitor
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.storage.volumes import Volumes
from atoll.supervisor.tenants.models import Models
from atoll.supervisor.tenants.quotas import TeamQuotas
from atoll.supervisor.tenants.secrets import Secrets
from atoll.supervisor.tenants.teams import Teams
from atoll.types import VolumePower


@dataclass(kw_only=True, frozen=True)
class PowerParts:
    """Who knows what a sandbox may do."""

    inventory: Inventory
    quotas: TeamQuotas
    teams: Teams
    secrets: Secrets
    registries: PackageRegistries
    volumes: Volumes
    idle: IdleMonitor
    models: Models
    hooks: HomeHooks


def power_routes(parts: PowerParts) -> list[Route]:
    """``/v1/sandboxes/REF/powers``."""

    async def powers(request: Request) -> Response:
        facts = await _facts(parts, parts.inventory.sandbox(request.path_params["ref"]))
        # A large policy takes a moment, in which others must be served.
        return json_answer(await asyncio.to_thread(powers_of, facts))

    return [Route("/v1/sandboxes/{ref}/powers", powers)]


async def _facts(parts: PowerParts, sandbox: Sandbox) -> PowerFacts:
    row = sandbox.row
    ceiling = parts.teams.ceiling_of(row.team)
    await parts.registries.found_for([row.network, ceiling])
    hosts = {host for each in (row.network, ceiling) if each for host in parts.registries.hosts_for(each)}
    rights = parts.models.rights_of(row)
    budgets = () if rights is None else rights.budgets
    return PowerFacts(
        info=info_of(sandbox, parts.quotas),
        ceiling=ceiling,
        registries=tuple(sorted(hosts)),
        secrets=[secret for secret in parts.secrets.list(row.team) if secret.team == row.team],
        volumes=_volumes(parts, sandbox),
        idle_s=parts.idle.tiers(sandbox).suspend_s,
        hooks=parts.hooks.events(),
        now_s=time.time(),
        models=() if rights is None else rights.allow,
        budgets=[told for name in budgets if (told := parts.models.ledger.budget(name)) is not None],
    )


def _volumes(parts: PowerParts, sandbox: Sandbox) -> list[VolumePower]:
    known = {volume.volume_id: volume for volume in parts.volumes.list(sandbox.row.team)}
    others = [
        {mount.volume for mount in other.row.volumes.values()}
        for other in parts.inventory.sandboxes()
        if other is not sandbox
    ]
    found = []
    for path, mount in sorted(sandbox.row.volumes.items()):
        volume = known.get(mount.volume)
        found.append(
            VolumePower(
                path=path,
                volume_id=mount.volume,
                name=mount.volume if volume is None else volume.name,
                read_only=mount.read_only,
                quota_mib=None if volume is None else volume.quota_mib,
                others=sum(mount.volume in mounted for mounted in others),
            )
        )
    return found
