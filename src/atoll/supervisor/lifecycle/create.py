"""Makes sandboxes: from the warm pool, from an image, or from a snapshot."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import AtollError, ImageNotFoundError, InvalidSpecError, StateError
from atoll.host import to_the_end
from atoll.images import image_name
from atoll.supervisor.lifecycle.callers import Caller
from atoll.supervisor.lifecycle.clone import Clones
from atoll.supervisor.lifecycle.crash_checkpoint import keep_instant
from atoll.supervisor.lifecycle.image_program import check_start, start_program_of
from atoll.supervisor.lifecycle.parts import Parts, machine_columns
from atoll.supervisor.lifecycle.warm_pool import Warm, WarmPool
from atoll.supervisor.machines.enforcement import refuse_unheld
from atoll.supervisor.machines.identity import first_init, taken_init
from atoll.supervisor.state.ids import check_env, check_metadata, check_name, new_id, new_machine_uid
from atoll.supervisor.state.paths import FIRST_DISK
from atoll.supervisor.state.registry import Sandbox
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.state.transitions import check_parts
from atoll.supervisor.storage.images import DEFAULT_IMAGE, ImageFacts
from atoll.supervisor.storage.template_registry import TemplateRegistry
from atoll.supervisor.storage.trash import erase
from atoll.types import BUILD_ATTRIBUTE, Progress, SandboxSpec

if TYPE_CHECKING:
    from atoll.network import Link


# A boot waits for processes to start half of its time. More boots at once would only make all of them slower.
_BOOTS_PER_PROCESSOR = 2


class Creation:
    """Makes sandboxes.

    Args:
        parts: What sandboxes are made of.
        pool: Warm machines.
        clones: Restores copies of snapshots.
        templates: Resolves templates to images or snapshots.
        tasks: Owner of image pulls and builds, which other callers may wait for too.
    """

    def __init__(
        self, parts: Parts, pool: WarmPool, clones: Clones, templates: TemplateRegistry, tasks: Tasks
    ) -> None:
        self._parts = parts
        self._pool = pool
        self._clones = clones
        self._templates = templates
        self._tasks = tasks
        # Not for copies: depending on what its guest was doing at the checkpoint, a copy may take long.
        self._starts = asyncio.Semaphore(_BOOTS_PER_PROCESSOR * (os.cpu_count() or 1))

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
            UnsupportedError: This host cannot enforce one of the limits.
            TeamNotFoundError: There is no such team.
            QuotaError: The quota of its team does not allow the sandbox.

        Postcondition: on any exception nothing of the sandbox is left.
        """
        caller = caller or Caller()
        caller.check()
        spec = self._resolved(spec)
        check_spec(spec)
        if not spec.best_effort:
            refuse_unheld(spec.limits, self._parts.means)
        volumes = self._volumes(spec)
        held = self._parts.registry.pins.during(*volumes.values())
        with self._parts.registry.reserve_sandbox_name(spec.name), held:
            if spec.from_snapshot is not None:
                async with self._parts.operations.during(new_id(), "create"):
                    return await self._from_snapshot(spec, spec.from_snapshot, volumes)
            if self._parts.engine_disks and not self._parts.registry.sandboxes():
                progress(Progress(step="the engine keeps the disks here, see `atoll doctor`"))
            sandbox_id = new_id()
            async with self._parts.quotas.making(spec.team, {sandbox_id: spec.limits}, spec.lifecycle):
                image, team = spec.image or DEFAULT_IMAGE, spec.team
                having = self._parts.quotas.within_disk(
                    team, lambda left_bytes: self._parts.images.have(image, progress, team, left_bytes)
                )
                info = await caller.unless_left(self._tasks.spawn(having))
                facts = self._parts.images.facts(info.digest)
                check_start(spec, facts)
                if spec.lifecycle.on_timeout == "stop":
                    check_parts(engine_disk=self._parts.engine_disks)
                async with self._parts.operations.during(new_id(), "create"):
                    row = self._row(spec, info.name, facts, volumes).but(sandbox_id=sandbox_id)
                    return await self._of_image(spec, row, facts, caller)

    async def _of_image(
        self, spec: SandboxSpec, row: SandboxRow, facts: ImageFacts, caller: Caller
    ) -> Sandbox:
        warm = await self._pool.take(facts.digest) if from_pool(spec) else None
        try:
            if warm is not None:
                try:
                    return await self._dress(warm, row, facts)
                except AtollError:
                    await self._pool.discard(warm)
                    self._parts.quotas.known_as(warm.sandbox_id, row.sandbox_id)
                except BaseException:
                    await to_the_end(self._pool.discard(warm))
                    raise
            with self._parts.registry.pins.during(row.sandbox_id, facts.digest):
                async with self._starts:
                    caller.check()
                    return await self._boot(row, facts)
        finally:
            self._pool.refill(facts.digest)

    def _volumes(self, spec: SandboxSpec) -> dict[str, str]:
        """The ids of the volumes that the sandbox mounts, by path."""
        if spec.from_snapshot is None:
            return self._parts.volumes.resolve(spec.volumes, spec.team)
        had = self._parts.registry.snapshot(spec.from_snapshot).volumes
        return self._parts.volumes.again(had, spec.volumes, spec.team)

    def _resolved(self, spec: SandboxSpec) -> SandboxSpec:
        """The spec with its template replaced by the image or snapshot that it stands for."""
        build_id = spec.attributes.get(BUILD_ATTRIBUTE)
        if build_id is not None:
            if not self._templates.is_building(build_id):
                raise StateError(f"the build {build_id} is over")
            # the program that builds a template does not know the team's bounds for leases
            lifecycle = self._parts.quotas.bounded(spec.team, spec.lifecycle)
            spec = msgspec.structs.replace(spec, lifecycle=lifecycle)
        if spec.template is None:
            return spec
        if spec.image is not None or spec.from_snapshot is not None:
            raise InvalidSpecError("a sandbox is of a template, an image or a snapshot", hint="give one")
        found = self._templates.resolve(spec.template, spec.team)
        return msgspec.structs.replace(
            spec, template=None, image=found.image, from_snapshot=found.snapshot_id
        )

    def _row(self, spec: SandboxSpec, image: str, facts: ImageFacts, volumes: dict[str, str]) -> SandboxRow:
        now_s = self._parts.registry.now_s()
        return SandboxRow(
            sandbox_id=new_id(),
            name=spec.name,
            image=image,
            image_digest=facts.digest,
            state="running",
            created_at=now_s,
            changed_at=now_s,
            env=spec.env,
            metadata=spec.metadata,
            network=spec.network or "internet",
            on_crash=spec.on_crash or "reboot",
            lifecycle=spec.lifecycle,
            started_at=now_s,
            volumes=volumes,
            team=spec.team,
            attributes=spec.attributes,
            limits=spec.limits,
            trust_host_ca=spec.trust_host_ca is not False,
            user=facts.user,
            cwd=facts.cwd,
            disk=FIRST_DISK,
            stack=(),
            generation=1,
            machine_uid=new_machine_uid(),
            versions=self._parts.programs.current,
            engine_disk=self._parts.engine_disks,
            start=bool(spec.start),
        )

    async def _dress(self, warm: Warm, blank: SandboxRow, facts: ImageFacts) -> Sandbox:
        """Turn a warm machine into the wanted sandbox.

        Its id and disk were chosen when the machine was made.
        """
        running = warm.running
        row = blank.but(
            sandbox_id=warm.sandbox_id,
            machine_uid=warm.machine_uid,
            versions=warm.versions,
            **machine_columns(running),
        )
        sandbox = Sandbox(row)
        self._parts.quotas.known_as(blank.sandbox_id, row.sandbox_id)
        with self._parts.registry.pins.during(row.sandbox_id, facts.digest):
            running.link.set_policy(row.network)
            if wanted := taken_init(row, facts.env):
                await running.alive(self._parts.agents.init(running.link, wanted), row.sandbox_id)
            await start_program_of(row, facts, running, self._parts.agents)
            await self._parts.registry.add(sandbox)
        self._parts.attach(sandbox, running)
        return sandbox

    async def _boot(self, row: SandboxRow, facts: ImageFacts) -> Sandbox:
        directory = self._parts.paths.sandbox(row.sandbox_id)
        directory.mkdir(mode=0o700)
        link: Link | None = None
        try:
            link = await self._parts.links.take()
            link.set_policy(row.network)
            wanted = first_init(row, facts, self._parts.nameserver)
            running = await self._parts.running_machines.begin(self._parts.plan(row), link, wanted)
            try:
                sandbox = Sandbox(row.but(**machine_columns(running)))
                await start_program_of(row, facts, running, self._parts.agents)
                await self._parts.registry.add(sandbox)
            except BaseException:
                await to_the_end(self._parts.running_machines.end(running))
                raise
        except BaseException:
            if link is not None:
                await to_the_end(link.aclose())
            await to_the_end(erase(directory))
            raise
        self._parts.attach(sandbox, running)
        return sandbox

    async def _from_snapshot(self, spec: SandboxSpec, ref: str, volumes: dict[str, str]) -> Sandbox:
        snapshot = self._parts.registry.snapshot(ref)
        if spec.image is not None and image_name(spec.image) != snapshot.image:
            raise ImageNotFoundError(
                f"snapshot {ref!r} is of image {snapshot.image!r}, not {spec.image!r}", hint="leave image out"
            )
        check_like(spec, snapshot)
        limits = spec.limits.over(snapshot.limits)
        if not spec.best_effort:
            refuse_unheld(limits, self._parts.means)
        if spec.lifecycle.on_timeout == "stop":
            check_parts(engine_disk=snapshot.engine_disk)
        now_s = self._parts.registry.now_s()
        row = SandboxRow(
            sandbox_id=new_id(),
            name=spec.name,
            image=snapshot.image,
            image_digest=snapshot.image_digest,
            state="running",
            created_at=now_s,
            changed_at=now_s,
            env={**snapshot.env, **spec.env},
            metadata=spec.metadata,
            network=spec.network or snapshot.network,
            on_crash=spec.on_crash or snapshot.on_crash,
            lifecycle=spec.lifecycle,
            started_at=now_s,
            volumes=volumes,
            team=spec.team,
            attributes=spec.attributes,
            limits=limits,
            trust_host_ca=snapshot.trust_host_ca,
            user=snapshot.user,
            cwd=snapshot.cwd,
            disk=FIRST_DISK,
            stack=snapshot.stack,
            generation=snapshot.generation + 1,
            machine_uid=new_machine_uid(),
            versions=snapshot.versions,
            snapshot_id=snapshot.snapshot_id,
            engine_disk=snapshot.engine_disk,
            start=snapshot.start,
            services=snapshot.services,
        )
        checkpoint = self._parts.paths.snapshot_checkpoint(snapshot.snapshot_id)
        with self._parts.registry.pins.during(row.sandbox_id, snapshot.snapshot_id, *snapshot.stack):
            async with self._parts.quotas.making(row.team, {row.sandbox_id: limits}, row.lifecycle):
                sandbox, running = await self._clones.clone(row, checkpoint, snapshot.env)
                try:
                    await self._parts.registry.add(sandbox)
                except BaseException:
                    await to_the_end(self._clones.undo(sandbox, running))
                    raise
            keep_instant(self._parts, sandbox.row, checkpoint)
        self._parts.attach(sandbox, running)
        return sandbox


def check_like(spec: SandboxSpec, snapshot: SnapshotRow) -> None:
    """Refuse values that were fixed when the snapshot's sandbox was made.

    Raises:
        InvalidSpecError: Names the value.
    """
    for name, asked, settled in (
        ("start", spec.start, snapshot.start),
        ("trust_host_ca", spec.trust_host_ca, snapshot.trust_host_ca),
    ):
        if asked is not None and asked != settled:
            raise InvalidSpecError(
                f"what it starts from has {name}={settled}, fixed when that was made",
                hint="leave it out, or make a sandbox of an image",
            )


def check_spec(spec: SandboxSpec) -> None:
    """Refuse an invalid spec.

    Raises:
        InvalidSpecError: Says what is wrong.
    """
    check_name(spec.name)
    check_env(spec.env)
    check_metadata(spec.metadata)
    check_metadata(spec.attributes, "attributes")
    spec.limits.check()
    spec.lifecycle.check()


def from_pool(spec: SandboxSpec) -> bool:
    """Whether a warm machine, with default limits and no volumes, satisfies the spec."""
    return not spec.limits.given() and spec.trust_host_ca is not False and not spec.volumes
