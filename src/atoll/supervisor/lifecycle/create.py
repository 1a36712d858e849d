"""Makes sandboxes: of an image, or of a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import InvalidSpecError, StateError
from atoll.policy import check_network_scopes, check_scope
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.lifecycle.idempotency import idempotency_of
from atoll.supervisor.lifecycle.progress import told_if_slow
from atoll.supervisor.state.ids import check_env, check_metadata, check_name, new_id
from atoll.supervisor.state.rows import ModelGrant
from atoll.types import Delegation, Progress, SandboxSpec, VolumeMount
from atoll.types.internal import BUILD_ATTRIBUTE, MODEL_ENV, check_services

if TYPE_CHECKING:
    from atoll.supervisor.lifecycle.create_of_image import ImageCreation
    from atoll.supervisor.lifecycle.create_of_snapshot import SnapshotCreation
    from atoll.supervisor.lifecycle.egress_control import EgressControl
    from atoll.supervisor.state.drain_gate import DrainGate
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.sandbox import Sandbox
    from atoll.supervisor.storage.template_rows import TemplateRows
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.delegations import Delegations
    from atoll.supervisor.tenants.models import Models
    from atoll.supervisor.tenants.quotas import TeamQuotas
    from atoll.supervisor.tenants.volume_quotas import VolumeQuotas


@dataclass(kw_only=True, eq=False, repr=False)
class Creation:
    """Makes sandboxes."""

    inventory: Inventory
    quotas: TeamQuotas
    delegations: Delegations
    models: Models
    egress: EgressControl
    volumes: Volumes
    volume_quotas: VolumeQuotas
    templates: TemplateRows
    gate: DrainGate
    of_image: ImageCreation
    of_snapshot: SnapshotCreation

    async def create(
        self, spec: SandboxSpec, progress: Callable[[Progress], None], caller: Caller | None = None
    ) -> Sandbox:
        """Make a sandbox and start it.

        Args:
            caller: The client that waits for it: once it has left, no step is started that only it needs.

        Raises:
            InvalidSpecError: The spec is invalid.
            NameTakenError: Another sandbox has the name.
            VolumeNotFoundError: The team has no volume of that name.
            ImageNotFoundError: There is no such image.
            SnapshotNotFoundError: There is no such snapshot.
            TemplateNotFoundError: There is no such template, or it has no such tag.
            UnsupportedError: The host cannot enforce one of the limits, or offers its team no models.
            TeamNotFoundError: There is no such team.
            QuotaError: The quota of its team does not allow the sandbox, or a volume that it could write to
                is full.
            DrainingError: The home is drained.
            DelegationExpiredError: What it would act under has ended.
            DelegationError: It asks for more than who asks may give, or than its own delegation allows.

        Postcondition: on any exception nothing of the sandbox is left.
        """
        caller = caller or Caller()
        caller.check()
        self.gate.check()
        idempotency = idempotency_of(spec)
        spec = self._resolved(spec)
        check_spec(spec)
        sandbox_id = new_id()
        delegation = await self._delegation(spec, sandbox_id, caller)
        if spec.models is not None:
            check_scope(delegation, "network", "a sandbox with models")
        if "network" not in delegation.scopes and spec.network is None:
            spec = msgspec.structs.replace(spec, network="none")
        if spec.network is not None:
            check_network_scopes(delegation, spec.network)
            await self.egress.check(spec.network, spec.team)
            before = None
            if spec.from_snapshot is not None:
                before = self.inventory.snapshot(spec.from_snapshot).network
            network = await self.egress.storable(spec.network, spec.team, before)
            spec = msgspec.structs.replace(spec, network=network)
        volumes = self._volumes_of(spec)
        if volumes:
            check_scope(delegation, "volumes", "a volume")
        held = self.inventory.pins.during(*{mount.volume for mount in volumes.values()})
        with self.gate.passing(), self.inventory.reserve_sandbox_name(spec.name), held:
            await self.volume_quotas.check_mounts(volumes.values())
            made = {
                "sandbox_id": sandbox_id,
                "idempotency": idempotency,
                "made_by": caller.made_by,
                "delegation": delegation,
                "models": await self._models_for(spec, sandbox_id),
            }
            spec = self._with_model_env(spec)
            if spec.from_snapshot is not None:
                # of much memory or disk, this takes a while
                async with told_if_slow(progress, lambda: Progress(step="restoring the snapshot")):
                    return await self.of_snapshot.create(spec, spec.from_snapshot, volumes, made)
            return await self.of_image.create(spec, volumes, progress, caller, made)

    async def _delegation(self, spec: SandboxSpec, sandbox_id: str, caller: Caller) -> Delegation:
        snapshot = None if spec.from_snapshot is None else self.inventory.snapshot(spec.from_snapshot)
        return await self.delegations.for_sandbox(
            spec.delegation,
            caller=caller.made_by,
            team=spec.team,
            snapshot=snapshot,
            sandbox_id=sandbox_id,
        )

    async def _models_for(self, spec: SandboxSpec, sandbox_id: str) -> ModelGrant | None:
        snapshot = None if spec.from_snapshot is None else self.inventory.snapshot(spec.from_snapshot)
        return await self.models.grant(spec.models, sandbox_id, spec.team, snapshot)

    def _with_model_env(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with the variables by which programs find the models, where there are no others."""
        if spec.models is None:
            return spec
        had = {} if spec.from_snapshot is None else self.inventory.snapshot(spec.from_snapshot).env
        fresh = {name: value for name, value in MODEL_ENV.items() if name not in had}
        return msgspec.structs.replace(spec, env={**fresh, **spec.env})

    def _volumes_of(self, spec: SandboxSpec) -> dict[str, VolumeMount]:
        """The volumes that the sandbox mounts, by path."""
        if spec.from_snapshot is None:
            return self.volumes.resolve(spec.volumes, spec.team)
        had = self.inventory.snapshot(spec.from_snapshot).volumes
        return self.volumes.again(had, spec.volumes, spec.team)

    def _resolved(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with its template replaced by the image or snapshot that it stands for."""
        build_id = spec.attributes.get(BUILD_ATTRIBUTE)
        if build_id is not None:
            if not self.templates.is_building(build_id):
                raise StateError(f"the build {build_id} has ended")
            # the program that builds a template does not know the team's bounds for leases
            lifecycle = self.quotas.bounded(spec.team, spec.lifecycle)
            spec = msgspec.structs.replace(spec, lifecycle=lifecycle)
        if spec.template is None:
            return spec
        if spec.image is not None or spec.from_snapshot is not None:
            raise InvalidSpecError(
                "a template, an image and a snapshot exclude each other", hint="give only one"
            )
        found = self.templates.resolve(spec.template, spec.team)
        return msgspec.structs.replace(
            spec, template=None, image=found.image, from_snapshot=found.snapshot_id
        )


def check_spec(spec: SandboxSpec) -> None:
    """Refuse an invalid spec.

    Raises:
        InvalidSpecError: Names the invalid field.
    """
    check_name(spec.name)
    check_env(spec.env)
    check_services(spec.services)
    for service in spec.services:
        check_env(service.env)
    check_metadata(spec.metadata)
    check_metadata(spec.attributes, "attributes")
    spec.limits.check()
    spec.lifecycle.check()
