"""Gives each route module of the API its parts."""

from __future__ import annotations

from starlette.routing import Route
from starlette.types import ASGIApp

from atoll.supervisor.api import make_app
from atoll.supervisor.api.acts import RequestActs
from atoll.supervisor.api.alerts import alert_routes
from atoll.supervisor.api.asks import ask_routes
from atoll.supervisor.api.audit import audit_routes
from atoll.supervisor.api.builds import build_routes
from atoll.supervisor.api.changes import Changes, change_routes
from atoll.supervisor.api.egress import egress_routes
from atoll.supervisor.api.forks import fork_routes
from atoll.supervisor.api.holds import hold_routes
from atoll.supervisor.api.housekeeping import housekeeping_routes
from atoll.supervisor.api.images import image_routes
from atoll.supervisor.api.keys import key_routes
from atoll.supervisor.api.leftovers import leftover_routes
from atoll.supervisor.api.metrics import metric_routes
from atoll.supervisor.api.models import model_routes
from atoll.supervisor.api.powers import PowerParts, power_routes
from atoll.supervisor.api.requests import request_routes
from atoll.supervisor.api.sandboxes import creation_routes, sandbox_routes
from atoll.supervisor.api.secrets import secret_routes
from atoll.supervisor.api.services import service_routes
from atoll.supervisor.api.snapshots import snapshot_routes
from atoll.supervisor.api.stable import stable_routes
from atoll.supervisor.api.states import state_routes, unplug_routes
from atoll.supervisor.api.teams import team_routes
from atoll.supervisor.api.templates import record_routes, template_routes
from atoll.supervisor.api.usage import usage_routes
from atoll.supervisor.api.volume_files import volume_file_routes
from atoll.supervisor.api.volumes import volume_routes
from atoll.supervisor.stopping import Stopping
from atoll.supervisor.system import System


def make_api(system: System, stopping: Stopping) -> ASGIApp:
    """The API of a system."""
    stable = stable_routes(
        home=system.home,
        inventory=system.inventory,
        suspend_all=system.suspend_all,
        stopping=stopping,
        tasks=system.tasks,
    )
    routes = [*stable, *_sandbox_routes(system), *_stored_routes(system), *_tenant_routes(system)]
    return make_app(routes, system.keeper, system.idle.asked, RequestActs(system.acts, system.inventory))


def _sandbox_routes(system: System) -> list[Route]:
    inventory, quotas, tasks = system.inventory, system.quotas, system.tasks
    callers = system.callers
    changes = Changes(inventory, quotas, tasks)
    return [
        *creation_routes(
            inventory=system.inventory,
            creation=system.creation,
            templates=system.templates,
            quotas=quotas,
            callers=callers,
            tasks=tasks,
        ),
        *sandbox_routes(
            inventory=inventory, quotas=quotas, paths=system.paths, kills=system.kills, tasks=tasks
        ),
        *egress_routes(
            inventory=inventory,
            paths=system.paths,
            egress=system.egress,
            registries=system.registries,
            decisions=system.decisions,
        ),
        *power_routes(_power_parts(system)),
        *ask_routes(inventory=inventory, asks=system.asks, tasks=tasks),
        *alert_routes(inventory=inventory, alerts=system.alerts),
        *usage_routes(
            inventory=inventory, usage=system.usage, history=system.history, ledger=system.model_ledger
        ),
        *state_routes(
            changes=changes,
            pauses=system.pauses,
            suspends=system.suspends,
            wakes=system.wakes,
            quotas=quotas,
            paths=system.paths,
        ),
        *unplug_routes(changes=changes, unplugs=system.unplugs, tasks=tasks),
        *change_routes(
            changes=changes,
            limits=system.limits,
            defaults=system.defaults,
            leases=system.leases,
            idle=system.idle,
            rollback=system.rollback,
            gate=system.drain_gate,
        ),
        *service_routes(inventory=inventory, services=system.services, tasks=tasks),
        *fork_routes(
            inventory=inventory,
            forks=system.forks,
            promotions=system.promotions,
            diffs=system.diffs,
            callers=callers,
            gate=system.drain_gate,
            tasks=tasks,
        ),
        *hold_routes(inventory=inventory, quotas=quotas, holds=system.holds),
        *request_routes(callers=callers, tasks=tasks),
    ]


def _power_parts(system: System) -> PowerParts:
    return PowerParts(
        inventory=system.inventory,
        quotas=system.quotas,
        teams=system.teams,
        secrets=system.secrets,
        registries=system.registries,
        volumes=system.volumes,
        idle=system.idle,
        models=system.models,
        hooks=system.home_hooks,
    )


def _stored_routes(system: System) -> list[Route]:
    inventory, quotas, tasks, verification = (
        system.inventory,
        system.quotas,
        system.tasks,
        system.verification,
    )
    return [
        *build_routes(templates=system.templates, tasks=tasks),
        *record_routes(templates=system.templates, inventory=inventory, quotas=quotas, tasks=tasks),
        *template_routes(
            templates=system.templates,
            inventory=system.inventory,
            quotas=quotas,
            trash=system.trash,
            tasks=tasks,
        ),
        *snapshot_routes(
            inventory=inventory,
            snapshots=system.snapshots,
            verification=verification,
            digests=system.digests,
            tasks=tasks,
        ),
        *image_routes(
            images=system.images, requests=system.image_requests, verification=verification, tasks=tasks
        ),
        *volume_routes(
            volumes=system.volumes, quotas=quotas, volume_quotas=system.volume_quotas, tasks=tasks
        ),
        *volume_file_routes(
            volumes=system.volumes,
            volume_quotas=system.volume_quotas,
            quotas=quotas,
            keeper=system.keeper,
            tasks=tasks,
        ),
        *leftover_routes(leftovers=system.leftovers, tasks=tasks),
        *housekeeping_routes(
            engine_uses=system.engine_uses,
            memory=system.look_at_memory,
            reports=system.disk_reports,
            teams=system.teams,
            drains=system.drains,
            fsck=system.fsck,
            tasks=tasks,
        ),
    ]


def _tenant_routes(system: System) -> list[Route]:
    return [
        *audit_routes(
            audit=system.acts.log,
            inventory=system.inventory,
            lines=system.client_lines,
            tasks=system.tasks,
        ),
        *team_routes(
            teams=system.teams,
            quotas=system.quotas,
            egress=system.egress,
            deletion=system.team_deletion,
            tasks=system.tasks,
        ),
        *key_routes(keys=system.keys, tasks=system.tasks),
        *metric_routes(system.metrics),
        *model_routes(
            models=system.models,
            ledger=system.model_ledger,
            inventory=system.inventory,
            tasks=system.tasks,
        ),
        *secret_routes(secrets=system.secrets, quotas=system.quotas, tasks=system.tasks),
    ]
