"""Makes, finds, mounts and erases volumes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from atoll.errors import AtollError, InUseError, InvalidSpecError, NameTakenError, VolumeNotFoundError
from atoll.host import RootedTree, remove_tree, sync_directory, to_the_end
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.ids import new_id
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.row_copies import ROW, RowCopies
from atoll.supervisor.state.rows import VolumeRow
from atoll.supervisor.storage.mount_points import check_mountpoints
from atoll.supervisor.storage.trash import ASIDE, Trash, erase_stale
from atoll.supervisor.storage.volume_files import VolumeFiles
from atoll.supervisor.storage.volume_lists import VolumeLists
from atoll.types import VolumeMount
from atoll.types.internal import check_volume_quota, volume_mount

_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")
# Every user in a sandbox that mounts a volume may use it, whatever that user's number is.
_ROOT_MODE = 0o777
# The default user of the image base, and of most others that have a user beside root.
_OWNER = (1000, 1000)
# The most of one team: an empty volume counts towards no quota, but each uses memory and disk space.
_VOLUMES_MOST = 10_000
_log = logging.getLogger(__name__)


class Volumes:
    """Manages the volumes of a home.

    A volume exists as long as its directory: its row is written after the directory, and deleted after it.

    Args:
        database: The database, open whenever a volume is accessed.
        copies: Rows of volumes that the database may have lost.
        inventory: Knows which sandboxes mount which volumes.
        paths: Where volumes are.
        trash: Erases them.
    """

    def __init__(
        self, database: Database, copies: RowCopies, inventory: Inventory, paths: Paths, trash: Trash
    ) -> None:
        self._database = database
        self._row_copies = copies
        self._inventory = inventory
        self._paths = paths
        self._lists = VolumeLists()
        self._trash = trash
        self._rows: dict[str, VolumeRow] = {}
        self._making: set[tuple[str | None, str]] = set()

    async def load(self) -> None:
        """Read the volumes. Delete rows without directories, and make rows for directories without one."""
        for row in await self._database.all(VolumeRow):
            if self._paths.volume_data(row.volume_id).is_dir():
                self._rows[row.volume_id] = row
                await asyncio.to_thread(_sweep, self._paths.volume_aside(row.volume_id))
            else:
                _log.warning("volume %s (%s) has lost its directory", row.volume_id, row.name)
                await self._database.delete(row)
        for kept in await asyncio.to_thread(lambda: list(self._row_copies.all(VolumeRow))):
            if isinstance(kept, VolumeRow) and kept.volume_id not in self._rows:
                await self._take_back(kept)

    async def _take_back(self, row: VolumeRow) -> None:
        if self._named(row.name, row.team) is not None:
            row = row.but(name=row.volume_id)
        if self._paths.volume_data(row.volume_id).is_dir():
            _log.warning("volume %s (%s) was not in the database", row.volume_id, row.name)
            await self._database.put(row, durable=True)
            self._rows[row.volume_id] = row

    def list(self, team: str | None = None) -> list[VolumeRow]:
        """All volumes, or those of a team, the oldest first."""
        rows = [row for row in self._rows.values() if team is None or row.team == team]
        return sorted(rows, key=lambda row: row.created_at)

    def ids(self) -> set[str]:
        """The ids of all volumes."""
        return set(self._rows)

    def kept_ids(self) -> set[str]:
        """The ids of the volumes whose rows have copies, whatever the database says."""
        return {path.parent.name for path in self._paths.volumes.glob(f"[!.]*/{ROW}")}

    def get(self, ref: str, team: str | None = None) -> VolumeRow:
        """The volume with this id, or with this name among those of the team.

        With a team, only the team's volumes are found; without one, an id finds any team's volume.

        Raises:
            VolumeNotFoundError: There is no such volume.
        """
        found = self._rows.get(ref)
        if found is not None and team is not None and found.team != team:
            found = None
        found = found or self._named(ref, team)
        if found is None:
            raise VolumeNotFoundError(f"there is no volume {ref!r}", hint="`atoll volume ls` lists them")
        return found

    def owned_by(self, team: str) -> tuple[str, ...]:
        """A team's volumes, in words for people."""
        return tuple(f"volume {row.name}" for row in self.list(team))

    def _named(self, name: str, team: str | None) -> VolumeRow | None:
        return next((row for row in self._rows.values() if (row.name, row.team) == (name, team)), None)

    async def create(self, name: str, team: str | None, quota_mib: int | None = None) -> VolumeRow:
        """Make an empty volume. It is durable when this returns.

        Raises:
            InvalidSpecError: The name or the quota is invalid, or the team has as many volumes as it may.
            NameTakenError: Another volume of the team has the name.
        """
        if not _NAME.fullmatch(name):
            raise InvalidSpecError(
                f"{name!r} is not a valid volume name",
                hint="use 1 to 128 letters, digits, dashes and underscores",
            )
        check_volume_quota(quota_mib)
        if len([row for row in self._rows.values() if row.team == team]) >= _VOLUMES_MOST:
            raise InvalidSpecError(f"there are {_VOLUMES_MOST} volumes already", hint="delete some")
        volume_id = new_id()
        with self._reserved(name, team), self._inventory.pins.during(volume_id):
            now_s = self._inventory.now_s()
            row = VolumeRow(volume_id=volume_id, name=name, team=team, created_at=now_s, quota_mib=quota_mib)
            directory = self._paths.volume(volume_id)
            try:
                await asyncio.to_thread(_make, directory, self._paths.volume_data(volume_id))
                await self._database.put(row, durable=True)
            except BaseException:
                await to_the_end(erase_stale(directory))
                raise
            self._rows[volume_id] = row
        return row

    async def set_quota(self, volume_id: str, quota_mib: int | None) -> VolumeRow:
        """Replace the quota of a volume. Data beyond the new quota stays.

        Raises:
            InvalidSpecError: The quota is invalid.
            VolumeNotFoundError: There is no such volume.
        """
        check_volume_quota(quota_mib)
        with self._inventory.pins.during(volume_id):
            row = self.get(volume_id).but(quota_mib=quota_mib, changed_at=self._inventory.now_s())
            await self._database.put(row, durable=True)
            self._rows[volume_id] = row
        return row

    @contextlib.contextmanager
    def _reserved(self, name: str, team: str | None) -> Iterator[None]:
        if self._named(name, team) is not None or (team, name) in self._making:
            raise NameTakenError(
                f"another volume has the name {name!r}", hint="choose another name, or delete that volume"
            )
        self._making.add((team, name))
        try:
            yield
        finally:
            self._making.discard((team, name))

    async def delete(self, ref: str, team: str | None = None) -> None:
        """Remove a volume at once, and erase its files soon.

        Raises:
            VolumeNotFoundError: There is no such volume.
            InUseError: A sandbox, running or asleep, mounts it or is about to, or its files are being
                accessed.
        """
        row = self.get(ref, team)
        users = [one.row.called for one in self._inventory.sandboxes() if row.volume_id in one.row.volume_ids]
        if users or self._inventory.pins.has(row.volume_id):
            raise InUseError(
                f"volume {ref!r} is used by {', '.join(users) or 'a running operation'}",
                hint="kill those sandboxes first",
            )
        del self._rows[row.volume_id]
        aside = self._paths.volumes / f"{ASIDE}{row.volume_id}"
        with self._inventory.pins.during(aside.name):
            try:
                await asyncio.to_thread(_set_aside, self._paths.volume(row.volume_id), aside)
            except BaseException:
                self._rows[row.volume_id] = row
                raise
            await self._database.delete(row)
            self._trash.take(aside)

    def files(self, row: VolumeRow) -> VolumeFiles:
        """Access to a volume's files without a sandbox."""
        data, aside = self._paths.volume_data(row.volume_id), self._paths.volume_aside(row.volume_id)
        return VolumeFiles(row.volume_id, RootedTree(data, aside, _OWNER), self._inventory, self._lists)

    def resolve(self, wanted: Mapping[str, str | VolumeMount], team: str | None) -> dict[str, VolumeMount]:
        """The wanted mounts by path, with the ids of their volumes.

        Raises:
            InvalidSpecError: A volume cannot be mounted at its path.
            VolumeNotFoundError: The team has no volume with that name or id.
        """
        check_mountpoints(wanted)
        mounts = {path: volume_mount(wanted[path]) for path in sorted(wanted)}
        return {
            path: msgspec.structs.replace(mount, volume=self._of_team(mount.volume, team))
            for path, mount in mounts.items()
        }

    def _of_team(self, ref: str, team: str | None) -> str:
        row = self.get(ref, team)
        if row.team != team:
            raise VolumeNotFoundError(
                f"there is no volume {ref!r}", hint="if it belongs to a team, name the team"
            )
        return row.volume_id

    def again(
        self,
        had: Mapping[str, VolumeMount],
        wanted: Mapping[str, str | VolumeMount],
        team: str | None,
    ) -> dict[str, VolumeMount]:
        """The mounts of a sandbox made from a snapshot: the snapshot's, with the ``wanted`` ones replaced.

        Raises:
            InvalidSpecError: The snapshot's sandbox mounted no volume at a path, or with the other right to
                write: its memory fixes both.
            VolumeNotFoundError: A volume is gone, or belongs to another team.
        """
        if strange := wanted.keys() - had.keys():
            raise InvalidSpecError(
                f"the snapshot has no volume at {', '.join(sorted(strange))}",
                hint=f"it has volumes at: {', '.join(sorted(had)) or 'no place'}",
            )
        for path, given in wanted.items():
            if volume_mount(given).read_only != had[path].read_only:
                was = "read-only" if had[path].read_only else "to be written"
                raise InvalidSpecError(
                    f"the snapshot mounts the volume at {path} {was}",
                    hint=f"give VolumeMount(…, read_only={had[path].read_only}) there too",
                )
        return self.resolve({**had, **wanted}, team)


def _make(directory: Path, data: Path) -> None:
    directory.mkdir(mode=0o700)
    data.mkdir()
    data.chmod(_ROOT_MODE)
    sync_directory(directory)
    sync_directory(directory.parent)


def _sweep(aside: Path) -> None:
    """Remove the leftovers of interrupted uploads and removals."""
    try:
        remove_tree(aside)
    except (AtollError, OSError) as error:
        _log.warning("cannot remove %s: %s", aside, error)


def _set_aside(directory: Path, aside: Path) -> None:
    os.rename(directory, aside)
    sync_directory(aside.parent)
