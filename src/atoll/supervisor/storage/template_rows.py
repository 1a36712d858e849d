"""The templates of a home: read from memory, stored in the database."""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path

import msgspec

from atoll.errors import AtollError, TemplateNotFoundError
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import TemplateRow
from atoll.supervisor.storage.images import DEFAULT_IMAGE
from atoll.types import BuildInfo, Resolved
from atoll.types.internal import DEFAULT_TAG

_BUILDS_KEPT = 32
_TAGS_SHOWN = 10
_ENDED = {"failed": "failed", "cancelled": "was cancelled"}
_log = logging.getLogger(__name__)


class TemplateRows:
    """Keeps all templates. Every change of a template takes ``lock``, and sets ``changed`` for a moment.

    Args:
        database: The database, open before ``load``.
        directory: Where each template has a directory for the copy of its row.
        clock: Returns Unix seconds.
    """

    def __init__(self, database: Database, directory: Path, clock: Callable[[], float]) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock
        self._rows: dict[str, TemplateRow] = {}
        self.lock = asyncio.Lock()
        self.changed = asyncio.Event()

    async def load(self) -> None:
        """Read the templates from the database."""
        self._rows = {row.template_id: row for row in await self._database.all(TemplateRow)}
        for entry in self._directory.iterdir() if self._directory.is_dir() else ():
            if entry.name not in self._rows:
                shutil.rmtree(entry, ignore_errors=True)

    def all(self, team: str | None = None) -> list[TemplateRow]:
        """All templates, or those of one team, the oldest first."""
        return [row for row in self._rows.values() if team is None or row.team == team]

    def find(self, ref: str, team: str | None = None, *, own: bool = False) -> TemplateRow:
        """The template with this id, name or ``TEAM/NAME``, as a team sees it; team None sees all.

        Args:
            ref: Id or name, without a tag.
            team: The team that asks. A plain name is the team's own template, or else a public one without a
                team.
            own: Find only the team's own templates, not other public ones.

        Raises:
            TemplateNotFoundError: There is no such template that the team may see.
        """
        found = self._rows.get(ref) or self._named(ref, team)
        if found is not None:
            is_own = team is None or found.team == team
            if is_own or (found.public and not own):
                return found
        near = get_close_matches(ref, names_for(self.all(), team))
        hint = f"did you mean {' or '.join(f'`{name}`' for name in near)}? " if near else ""
        raise TemplateNotFoundError(
            f"template {ref!r} not found", hint=f"{hint}`atoll template ls` lists them"
        )

    def named(self, name: str, team: str | None) -> TemplateRow | None:
        """The team's own template with this name."""
        return next((row for row in self._rows.values() if (row.name, row.team) == (name, team)), None)

    def build(self, build_id: str) -> tuple[TemplateRow, BuildInfo]:
        """A build and its template.

        Raises:
            TemplateNotFoundError: There is no such build.
        """
        for row in self._rows.values():
            for build in row.builds:
                if build.build_id == build_id:
                    return row, build
        raise TemplateNotFoundError(f"there is no build {build_id!r}")

    def owned_by(self, team: str) -> list[str]:
        """The templates of a team, in words for people."""
        return [f"template {row.name or row.template_id}" for row in self.all(team)]

    def going(self, team: str | None) -> int:
        """How many builds of a team are in progress."""
        rows = [row for row in self._rows.values() if row.team == team]
        return sum(build.state == "building" for row in rows for build in row.builds)

    @property
    def busy(self) -> bool:
        """Whether any build is in progress."""
        return any(build.state == "building" for row in self._rows.values() for build in row.builds)

    def is_building(self, build_id: str | None) -> bool:
        """Whether a build with this id is in progress."""
        builds = (build for row in self._rows.values() for build in row.builds)
        return any(build.build_id == build_id and build.state == "building" for build in builds)

    def resolve(self, ref: str, team: str | None) -> Resolved:
        """Find a sandbox's start from ``NAME``, ``TEAM/NAME`` or an id, each with or without ``:TAG``.

        The id of a build that is ready may stand for a tag.
        The default image's name means that image until a template with this name has a finished build.

        Raises:
            TemplateNotFoundError: There is no such template, or it has no such tag.
        """
        name, tag = split_tag(ref)
        image = (
            Resolved(template_id=name, name=name, image=name)
            if (name, tag) == (DEFAULT_IMAGE, DEFAULT_TAG)
            else None
        )
        try:
            row = self.find(name, team)
        except TemplateNotFoundError:
            if image is None:
                raise
            return image
        build = row.info().build(tag) or _ready_build(row, tag, team)
        if build is None and image is not None and not row.tags:
            return image
        if build is None:
            raise _missing_tag(row, name, tag)
        return Resolved(
            template_id=row.template_id,
            name=row.name,
            team=row.team,
            tag=tag,
            build_id=build.build_id,
            snapshot_id=build.snapshot_id,
            limits=build.limits,
        )

    def user_of(self, snapshot_id: str) -> str | None:
        """The template, by name or id, that a snapshot is kept for; None if no tag leads to it."""
        for row in self._rows.values():
            tagged = {tag.build_id for tag in row.tags.values()}
            if any(one.snapshot_id == snapshot_id and one.build_id in tagged for one in row.builds):
                return row.name or row.template_id
        return None

    async def give_up(self, reason: str) -> None:
        """Mark all builds in progress as failed. On a full disk this lasts until the supervisor ends."""
        for row in self.all():
            going = [build for build in row.builds if build.state == "building"]
            for build in going:
                try:
                    await self.change_build(build.build_id, state="failed", reason=reason)
                except (AtollError, OSError) as error:
                    _log.warning("cannot store the end of build %s: %s", build.build_id, error)
                    failed = msgspec.structs.replace(build, state="failed", reason=reason)
                    row = self._rows[row.template_id]
                    builds = tuple(failed if one is build else one for one in row.builds)
                    self._rows[row.template_id] = row.but(builds=builds)

    async def put(self, row: TemplateRow) -> TemplateRow:
        """Store a new or changed template. It is on the disk when this returns."""
        row = row.but(changed_at=self._clock(), builds=_bounded(row))
        (self._directory / row.template_id).mkdir(mode=0o700, parents=True, exist_ok=True)
        await self._database.put(row, durable=True)
        self._rows[row.template_id] = row
        self._tell()
        return row

    async def change_build(
        self,
        build_id: str,
        tags_of: Callable[[TemplateRow, BuildInfo], TemplateRow] | None = None,
        **changes: object,
    ) -> tuple[TemplateRow, BuildInfo]:
        """Change a build. It is on the disk when this returns.

        Args:
            build_id: The build to change.
            tags_of: Changes its template too: gets the changed template and build.
        """
        row, build = self.build(build_id)
        now_s = self._clock()
        changed = msgspec.structs.replace(build, changed_at=now_s, **changes)
        builds = tuple(changed if one.build_id == build_id else one for one in row.builds)
        row = row.but(builds=builds, changed_at=now_s)
        return await self.put(tags_of(row, changed) if tags_of else row), changed

    async def forget(self, row: TemplateRow) -> None:
        """Delete a template's row."""
        await self._database.delete(row)
        self._rows.pop(row.template_id, None)
        shutil.rmtree(self._directory / row.template_id, ignore_errors=True)
        self._tell()

    def _tell(self) -> None:
        self.changed.set()
        self.changed.clear()

    def _named(self, ref: str, team: str | None) -> TemplateRow | None:
        space, slash, name = ref.rpartition("/")
        if slash:
            return self.named(name, space)
        found = self.named(name, team)
        if found is None and team is not None:
            found = self.named(name, None)
        return found


def names_for(rows: Iterable[TemplateRow], team: str | None) -> list[str]:
    """The names that a team may give: of its own templates, and of public ones without a team."""
    return [row.name for row in rows if row.name and (row.team == team or (row.public and row.team is None))]


def split_tag(ref: str) -> tuple[str, str]:
    """A template's name and tag."""
    name, _, tag = ref.partition(":")
    return name, tag or DEFAULT_TAG


def _ready_build(row: TemplateRow, build_id: str, team: str | None) -> BuildInfo | None:
    """The build with this id, if the team sees it and its state is stored."""
    builds = row.shown_to(team).builds
    return next((one for one in builds if one.build_id == build_id and one.snapshot_id is not None), None)


def _missing_tag(row: TemplateRow, name: str, tag: str) -> TemplateNotFoundError:
    """The error for a template without that tag. A template that was never ready has no tags."""
    if row.tags:
        listed = ", ".join([*row.tags][:_TAGS_SHOWN])
        message = f"tag {tag!r} does not exist for template {name!r}"
        return TemplateNotFoundError(message, hint=f"build it, or name a tag that it has: {listed}")
    ended = _ENDED.get(row.builds[-1].state) if row.builds else None
    if ended:
        message = f"template {name!r} has no build that is ready: the last one {ended}"
        return TemplateNotFoundError(message, hint="`Templates.get` says why; build it again")
    message = f"template {name!r} has no tag"
    return TemplateNotFoundError(message, hint="wait until its build is ready, or build it")


def _bounded(row: TemplateRow) -> tuple[BuildInfo, ...]:
    """The builds to keep: all that have a tag or are in progress, and the newest others."""
    tagged = {tag.build_id for tag in row.tags.values()}
    others = [one for one in row.builds if one.build_id not in tagged and one.state != "building"]
    dropped = {one.build_id for one in others[:-_BUILDS_KEPT]}
    return tuple(one for one in row.builds if one.build_id not in dropped)
