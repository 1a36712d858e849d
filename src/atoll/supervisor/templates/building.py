"""Makes and builds templates, and erases snapshots and steps that no template needs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import re
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field

import msgspec

from atoll.errors import (
    AtollError,
    InUseError,
    InvalidSpecError,
    QuotaError,
    SandboxNotFoundError,
    SnapshotNotFoundError,
    StateError,
)
from atoll.protocol import FinishRequest, TemplateRequest
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.lifecycle.snapshot import Snapshots
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.rows import SnapshotRow, StepRow, TemplateRow
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.storage.build_cache import BuildCache
from atoll.supervisor.storage.template_rows import TemplateRows, split_tag
from atoll.supervisor.storage.trash import Trash
from atoll.types import BuildInfo, PrunedSteps, Quotas, Resolved, TagInfo
from atoll.types.internal import BUILD_ATTRIBUTE, DEFAULT_TAG

_NAME = re.compile(r"[a-z0-9_-]{1,63}")
_TAG = re.compile(r"[a-z0-9_.-]{1,63}")
_TAGS_MOST = 64
_TEMPLATES_MOST = 1000
_REASON_MOST = 4096
_STEP_MOST = 64
_TEND_S = 5.0
# for the steps of one build, if each of them keeps a copy of the disk
_COPIES_MOST_BYTES = 1 << 30
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Templates:
    """Makes, builds, tags and deletes templates.

    A client does a build, see ``sdk``. This class keeps the results, and cleans up when the client leaves.

    Args:
        quotas: Returns a team's quotas, which limit its concurrent builds.
        copied_disks: Whether each step keeps a copy of the disk.
    """

    rows: TemplateRows
    steps: BuildCache
    inventory: Inventory
    snapshots: Snapshots
    kills: Kills
    quotas: Callable[[str | None], Quotas]
    _: KW_ONLY
    copied_disks: bool = False
    _look: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _recording: set[str] = field(default_factory=set, init=False)

    async def load(self) -> None:
        """Read the templates and the steps from the database."""
        await self.rows.load()
        await self.steps.load()

    async def start(self) -> None:
        """Fail the builds that began under an earlier supervisor: their clients have lost the connection."""
        await self.rows.give_up("the supervisor ended during the build")
        await self.sweep()

    async def tend(self) -> None:
        """Erase snapshots and steps once nothing needs them. Never returns."""
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), _TEND_S)
            self._look.clear()
            try:
                await self.steps.tidy()
            except AtollError as error:
                _log.warning("cannot delete unused build steps: %s", error)
            await self.sweep()

    async def create(self, wanted: TemplateRequest) -> BuildInfo:
        """Make a template with this name if there is none, and a build of it that waits to begin.

        Raises:
            InvalidSpecError: The name or a tag is invalid, or the team has too many templates.
        """
        name, tags = _named(wanted.name, wanted.tags)
        wanted.limits.check()
        async with self.rows.lock:
            build = self._build(wanted.team, name, limits=wanted.limits, tags=tags)
            row = _row(self.rows, wanted.team, name, build)
            _check_count(row.tags.keys() | set(tags))
            await self.rows.put(row.but(public=row.public if wanted.public is None else wanted.public))
        return build

    async def record(
        self, what: str | Sandbox, name: str | None, team: str | None, tags: Sequence[str] = ()
    ) -> Resolved:
        """Make a snapshot the new build of a template. It belongs to the template from then on.

        Args:
            what: The snapshot, or a sandbox to snapshot. If this fails, it removes a snapshot that it took.
            name: The template's name; None for a template without a name.
            team: The team that owns it.
            tags: The tags that refer to this build from now on; empty means the default tag.

        Raises:
            SnapshotNotFoundError, SandboxNotFoundError: The team has no such snapshot or sandbox.
            InUseError: The snapshot belongs to a template already.
            InvalidSpecError: The name or a tag is invalid.
            StateError, QuotaError: No snapshot can be taken of the sandbox.
        """
        plain, all_tags = _named(name, tags) if name is not None else (None, _checked(tags))
        build_id = str(uuid.uuid4())
        self._recording.add(build_id)
        try:
            if isinstance(what, Sandbox):
                if team is not None and what.row.team != team:
                    raise SandboxNotFoundError(f"there is no sandbox {what.sandbox_id!r}")
                what = (await self.snapshots.make(what, None, "", build_id)).snapshot_id
            async with self.rows.lock:
                snapshot = self.inventory.snapshot(what)
                _check_free(snapshot, what, team, build_id)
                values = {"state": "ready", "tags": all_tags, **_of_snapshot(snapshot)}
                build = self._build(team, plain, build_id=build_id, **values)
                row = await self.rows.put(_tagged(_row(self.rows, team, plain, build), build))
                if snapshot.build_id is None:
                    await self.inventory.own_snapshot(snapshot.snapshot_id, build_id)
        finally:
            self._recording.discard(build_id)
            self._look.set()
        return self.rows.resolve(f"{row.template_id}:{all_tags[0]}", team)

    async def begin(self, build_id: str) -> BuildInfo:
        """Mark a waiting build as begun.

        Raises:
            TemplateNotFoundError: There is no such build.
            StateError: The build began before.
            QuotaError: The team has as many builds in progress as it may.
        """
        async with self.rows.lock:
            row, build = self.rows.build(build_id)
            if build.state != "waiting":
                raise StateError("build is not in waiting state", hint=f"it is {build.state}")
            most = self.quotas(row.team).builds
            if most is not None and self.rows.going(row.team) >= most:
                raise QuotaError(
                    f"{most} builds of team {row.team!r} run already", hint="wait until one of them ends"
                )
            _, build = await self.rows.change_build(build_id, state="building")
        return build

    async def finish(self, build_id: str, wanted: FinishRequest) -> BuildInfo:
        """End a build and kill its sandboxes.

        A ready build gets its tags. A build that has ended does not change.

        Raises:
            TemplateNotFoundError: There is no such build.
            SnapshotNotFoundError: The build is ready but has no snapshot.
        """
        async with self.rows.lock:
            row, build = self.rows.build(build_id)
            if build.state in ("waiting", "building"):
                is_ready = wanted.state == "ready"
                if is_ready:
                    self.inventory.snapshot(wanted.snapshot_id or "")
                # With its tags in the same step: a ready build that has no tag is not needed.
                _, build = await self.rows.change_build(
                    build_id,
                    tags_of=_tagged if is_ready else None,
                    state=wanted.state,
                    snapshot_id=wanted.snapshot_id if is_ready else None,
                    image=wanted.image,
                    step=wanted.step[:_STEP_MOST] if wanted.step else None,
                    reason=wanted.reason[:_REASON_MOST] if wanted.reason else None,
                )
        if self.copied_disks:
            rows = [row for row in self.inventory.snapshots() if row.build_id == build_id]
            for snapshot_id in _too_much(rows):
                await self.steps.forget(snapshot_id)
        await self.sweep()
        return build

    async def over(self, build_id: str) -> None:
        """Wait until a build is over."""
        while self.rows.is_building(build_id):
            await self.rows.changed.wait()

    async def cached(self, build_id: str, keys: Iterable[str]) -> StepRow | None:
        """The first of these steps that was built before and whose snapshot still exists."""
        self.rows.build(build_id)
        waiting = list(keys)
        while (step := await self.steps.first(waiting)) is not None:
            try:
                self.inventory.snapshot(step.snapshot_id)
                return step
            except SnapshotNotFoundError:
                await self.steps.forget(step.snapshot_id)
        return None

    async def delete(self, ref: str, team: str | None) -> None:
        """Delete a template and its steps, and cancel its builds.

        Snapshots go as soon as nothing depends on them.

        Raises:
            TemplateNotFoundError: The team has no such template.
        """
        async with self.rows.lock:
            row = self.rows.find(split_tag(ref)[0], team, own=True)
            await self.rows.forget(row)
        # Snapshots of builds too old to be listed go too: nothing records any more which template they
        # belonged to.
        known = {build.build_id for row in self.rows.all() for build in row.builds}
        for snapshot in self.inventory.snapshots():
            if snapshot.build_id is not None and snapshot.build_id not in known:
                await self.steps.forget(snapshot.snapshot_id)
        await self.sweep()

    async def tag(self, ref: str, tags: Sequence[str], team: str | None) -> BuildInfo:
        """Add tags to the build that ``NAME:TAG`` refers to.

        Raises:
            TemplateNotFoundError: The team has no such template, or it has no such tag.
            InvalidSpecError: A tag is invalid, or there is none.
        """
        if not tags:
            raise InvalidSpecError("At least one tag is required")
        name, tag = split_tag(ref)
        async with self.rows.lock:
            row = self.rows.find(name, team, own=True)
            self.rows.resolve(f"{row.template_id}:{tag}", team)
            build = msgspec.structs.replace(_built(row, tag), tags=_checked(tags))
            await self.rows.put(_tagged(row, build))
        self._look.set()
        return build

    async def untag(self, ref: str, tags: Sequence[str], team: str | None) -> None:
        """Remove tags. Tags that the template does not have are no error.

        Raises:
            TemplateNotFoundError: The team has no such template.
            InvalidSpecError: The default tag is among the tags, or there is none.
        """
        if not tags:
            raise InvalidSpecError("At least one tag is required")
        if DEFAULT_TAG in tags:
            raise InvalidSpecError(f"Cannot delete the '{DEFAULT_TAG}' tag", hint="delete the template")
        async with self.rows.lock:
            row = self.rows.find(split_tag(ref)[0], team, own=True)
            await self.rows.put(row.but(tags={tag: of for tag, of in row.tags.items() if tag not in tags}))
        self._look.set()

    async def publish(self, ref: str, public: bool, team: str | None) -> TemplateRow:
        """Allow every team, or only its own, to make sandboxes of a template.

        Raises:
            TemplateNotFoundError: The team has no such template.
        """
        async with self.rows.lock:
            return await self.rows.put(self.rows.find(ref, team, own=True).but(public=public))

    async def made(self, sandbox: Sandbox) -> None:
        """Check a new sandbox, and kill it if it is for a build that has ended meanwhile.

        Raises:
            StateError: The build has ended.
        """
        build_id = sandbox.row.attributes.get(BUILD_ATTRIBUTE)
        if build_id is not None and not self.rows.is_building(build_id):
            await self.kills.kill(sandbox)
            raise StateError(f"the build {build_id} has ended")

    async def sweep(self) -> list[str]:
        """Kill the sandboxes of builds that are over, and erase the snapshots that nothing needs any more.

        Returns why some of these stay.
        """
        kept = []
        for sandbox in self.inventory.sandboxes():
            build_id = sandbox.row.attributes.get(BUILD_ATTRIBUTE)
            if build_id is not None and not self.rows.is_building(build_id):
                try:
                    await self.kills.kill(sandbox)
                except (AtollError, OSError) as error:
                    _log.warning("cannot kill sandbox %s of a build: %s", sandbox.sandbox_id, error)
        # Children before their parents.
        for row in reversed(self.inventory.snapshots()):
            if row.build_id is None or self._keeps(row.snapshot_id, row.build_id):
                continue
            try:
                await self.snapshots.remove(row.snapshot_id)
            except (SnapshotNotFoundError, SandboxNotFoundError):
                continue
            except InUseError as error:
                kept.append(str(error))
            except (AtollError, OSError) as error:
                _log.warning("cannot delete snapshot %s of a build: %s", row.snapshot_id, error)
                kept.append(f"the snapshot {row.snapshot_id!r} cannot be erased: {error}")
        return kept

    def _keeps(self, snapshot_id: str, build_id: str) -> bool:
        """Whether a snapshot of a build is still needed."""
        rows = self.rows
        is_going = build_id in self._recording or rows.is_building(build_id)
        return is_going or self.steps.has(snapshot_id) or bool(rows.user_of(snapshot_id))

    def _build(self, team: str | None, name: str | None, **values: object) -> BuildInfo:
        found = self.rows.named(name, team) if name is not None else None
        now_s = self.inventory.now_s()
        known = {
            "build_id": str(uuid.uuid4()),
            "template_id": found.template_id if found else new_id(),
            "state": "waiting",
            "created_at": now_s,
            "changed_at": now_s,
        }
        return BuildInfo(**{**known, **values})  # type: ignore[arg-type]


def _row(rows: TemplateRows, team: str | None, name: str | None, build: BuildInfo) -> TemplateRow:
    """The template with this name and a further build, or a new template if there is none yet."""
    found = rows.named(name, team) if name is not None else None
    if found is not None:
        return found.but(builds=(*found.builds, build))
    if len([row for row in rows.all() if row.team == team]) >= _TEMPLATES_MOST:
        raise InvalidSpecError(f"there are {_TEMPLATES_MOST} templates already", hint="delete some")
    return TemplateRow(
        template_id=build.template_id,
        name=name,
        team=team,
        public=False,
        created_at=build.created_at,
        changed_at=build.created_at,
        tags={},
        builds=(build,),
    )


def _too_much(rows: Sequence[SnapshotRow]) -> list[str]:
    """The older states of a build, whose copies of the disk take too much together with the newer ones.

    States without a state on top are not among them: a failed build goes on there.
    """
    parents = {row.parent_id for row in rows}
    newest_first = sorted(rows, key=lambda row: row.created_at, reverse=True)
    sizes = itertools.accumulate(row.memory_bytes + row.disk_bytes for row in newest_first)
    return [
        row.snapshot_id
        for row, total in zip(newest_first, sizes, strict=True)
        if row.snapshot_id in parents and total > _COPIES_MOST_BYTES
    ]


async def forget_steps(templates: Templates, inventory: Inventory, trash: Trash) -> PrunedSteps:
    """Forget all steps built so far. Erase their snapshots unless a template needs them."""
    before = {row.snapshot_id: row for row in inventory.snapshots() if row.build_id is not None}
    count = len(templates.steps)
    await templates.steps.forget()
    kept = await templates.sweep()
    await trash.settle()
    left = {row.snapshot_id: row for row in inventory.snapshots()}
    sandboxes = [sandbox.row for sandbox in inventory.sandboxes()]
    layers = {layer for row in (*left.values(), *sandboxes) for layer in row.stack}
    gone = [row for snapshot_id, row in before.items() if snapshot_id not in left]
    needed = sum(bool(templates.rows.user_of(snapshot_id)) for snapshot_id in before.keys() & left.keys())
    if needed:
        kept.append(f"{needed} states are needed by templates: `atoll template delete` erases them")
    disk_bytes = sum(row.disk_bytes for row in gone if not layers.intersection(row.stack[:1]))
    return PrunedSteps(
        steps=count,
        snapshots=len(gone),
        freed_bytes=sum(row.memory_bytes for row in gone) + disk_bytes,
        kept=kept,
    )


def _check_free(snapshot: SnapshotRow, ref: str, team: str | None, build_id: str) -> None:
    """Raise an error unless a snapshot, found by ``ref``, may belong to that build of that team."""
    if team is not None and snapshot.team != team:
        raise SnapshotNotFoundError(f"there is no snapshot {ref!r}")
    if snapshot.build_id not in (None, build_id):
        raise InUseError(f"the snapshot {ref!r} belongs to a template already")


def _of_snapshot(snapshot: SnapshotRow) -> dict[str, object]:
    """The fields that a build takes from its snapshot."""
    return {name: getattr(snapshot, name) for name in ("snapshot_id", "sandbox_id", "image", "limits")}


def _named(name: str, tags: Sequence[str]) -> tuple[str, list[str]]:
    """A name that may end with a tag, and tags, both checked."""
    plain, colon, tag = name.partition(":")
    if not plain:
        raise InvalidSpecError("Name is required")
    if not _NAME.fullmatch(plain):
        raise InvalidSpecError(
            f"Invalid template name: {plain[:80]!r}", hint="use 1 to 63 of a-z, 0-9, - and _"
        )
    return plain, _checked([tag, *tags] if colon else tags)


def _checked(tags: Sequence[str]) -> list[str]:
    """The tags, each once, or the default tag if there are none."""
    if len(tags) > _TAGS_MOST:
        raise InvalidSpecError(f"{len(tags)} tags are too many", hint=f"give {_TAGS_MOST} at most")
    for tag in tags:
        if not _TAG.fullmatch(tag):
            raise InvalidSpecError(f"Invalid tag: {tag[:80]!r}", hint="use 1 to 63 of a-z, 0-9, -, _ and .")
    return list(dict.fromkeys(tags)) or [DEFAULT_TAG]


def _tagged(row: TemplateRow, build: BuildInfo) -> TemplateRow:
    """The template with the build's tags referring to the build."""
    told = {tag: TagInfo(build_id=build.build_id, created_at=row.changed_at) for tag in build.tags}
    tags = {**row.tags, **told}
    _check_count(tags.keys())
    return row.but(tags=tags)


def _check_count(tags: Collection[str]) -> None:
    if len(tags) > _TAGS_MOST:
        raise InvalidSpecError(f"a template has {_TAGS_MOST} tags at most", hint="remove some")


def _built(row: TemplateRow, tag: str) -> BuildInfo:
    build = row.info().build(tag)
    assert build is not None  # the tag was resolved before
    return build
