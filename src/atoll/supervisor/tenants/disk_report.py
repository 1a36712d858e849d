"""Reports the disk usage of each sandbox, snapshot, image, template, volume and team."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from atoll.supervisor.state.references import digests_in_use
from atoll.supervisor.tenants.disk_sizes import DiskParts
from atoll.types import DiskReport, DiskUse

if TYPE_CHECKING:
    from atoll.host import DiskUsage
    from atoll.images import Image
    from atoll.protocol import Leftover
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.paths import Paths
    from atoll.supervisor.storage.template_rows import TemplateRows
    from atoll.supervisor.storage.volumes import Volumes
    from atoll.supervisor.tenants.disk_sizes import DiskSizes


class Used(NamedTuple):
    """A user of disk space. ``parts`` names its parts, each of which others may use too."""

    kind: Literal["sandbox", "snapshot", "image", "template", "volume"]
    id: str
    name: str | None
    team: str | None
    parts: frozenset[str]


def shares(users: Sequence[Used], sizes: Mapping[str, int]) -> list[DiskUse]:
    """Each user's exclusive and shared use, the largest first."""
    count = Counter(part for user in users for part in user.parts)
    found = []
    for user in users:
        own = sum(sizes[part] for part in user.parts if count[part] == 1)
        whole = sum(sizes[part] for part in user.parts)
        found.append(
            DiskUse(
                kind=user.kind,
                id=user.id,
                name=user.name,
                team=user.team,
                own_bytes=own,
                shared_bytes=whole - own,
            )
        )
    return sorted(found, key=lambda use: (-use.own_bytes, -use.shared_bytes, use.kind, use.id))


def team_shares(users: Iterable[Used], sizes: Mapping[str, int]) -> list[DiskUse]:
    """Each team's exclusive use, and its use shared with other teams."""
    parts: dict[str | None, frozenset[str]] = {}
    for user in users:
        parts[user.team] = parts.get(user.team, frozenset()) | user.parts
    count = Counter(part for used in parts.values() for part in used)
    found = []
    for team, used in parts.items():
        own = sum(sizes[part] for part in used if count[part] == 1)
        whole = sum(sizes[part] for part in used)
        found.append(DiskUse(kind="team", id=team or "", team=team, own_bytes=own, shared_bytes=whole - own))
    return sorted(found, key=lambda use: (-use.own_bytes, use.id))


@dataclass(kw_only=True, eq=False, repr=False)
class DiskReports:
    """Makes reports, one at a time: they read every directory that has changed.

    Args:
        images: Returns the images with a name, and the images with the given digests.
        leftovers: Finds the leftovers.
        disk: Returns the size and the free space of the home's file system.
    """

    inventory: Inventory
    volumes: Volumes
    images: Callable[[Collection[str]], dict[str, Image]]
    templates: TemplateRows
    sizes: DiskSizes
    paths: Paths
    leftovers: Callable[[], Awaitable[list[Leftover]]]
    disk: Callable[[], DiskUsage]
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def make(self, team: str | None = None) -> DiskReport:
        """Measure the disk usage, and report it.

        Args:
            team: Report only on this team, as if there were no other; None reports on everything.
        """
        async with self._turn:
            images = await asyncio.to_thread(self.images, digests_in_use(self.inventory))
            if team is not None:
                images = {digest: image for digest, image in images.items() if image.info.pulled_for == team}
            await self.sizes.measure(self._measurable(team, images))
            left = sum(one.size_bytes for one in await self.leftovers()) if team is None else None
            disk = await asyncio.to_thread(self.disk) if team is None else None
            linked = await asyncio.to_thread(_linked, self._checkpoints())
        # A part that is newer than the measurement counts as nothing.
        users = self._users(team, images)
        memories = {row.snapshot_id: row.memory_bytes for row in self.inventory.snapshots()}
        sizes = {part: self._size(part, memories) for user in users for part in user.parts}
        users = [_with_links(user, linked, sizes) for user in users]
        return DiskReport(
            uses=shares(users, sizes),
            teams=team_shares(users, sizes),
            total_bytes=sum(sizes.values()),
            leftover_bytes=left,
            free_bytes=disk.free if disk else None,
            disk_bytes=disk.total if disk else None,
        )

    def _checkpoints(self) -> dict[str, Path]:
        """Where the memories are, by the parts that contain them."""
        found = {
            f"changing:{one.sandbox_id}": self.paths.checkpoint(one.sandbox_id)
            for one in self.inventory.sandboxes()
            if one.row.state == "suspended"
        }
        return found | {
            f"memory:{row.snapshot_id}": self.paths.snapshot_checkpoint(row.snapshot_id)
            for row in self.inventory.snapshots()
        }

    def _measurable(self, team: str | None, images: Mapping[str, Image]) -> DiskParts:
        sandboxes = [one for one in self.inventory.sandboxes() if team in (None, one.row.team)]
        layers = {id_ for one in sandboxes for id_ in one.row.stack}
        layers |= {id_ for row in self.inventory.snapshots() if team in (None, row.team) for id_ in row.stack}
        volumes = [row.volume_id for row in self.volumes.list(team)]
        return DiskParts(
            changing=self.sizes.changing(sandboxes, volumes),
            layers=frozenset(layers),
            trees=frozenset(lower for image in images.values() for lower in image.lowers),
        )

    def _users(self, team: str | None, images: Mapping[str, Image]) -> list[Used]:
        found: list[Used] = []
        for row in (one.row for one in self.inventory.sandboxes()):
            parts = {f"changing:{row.sandbox_id}", *(f"layer:{layer_id}" for layer_id in row.stack)}
            found.append(Used("sandbox", row.sandbox_id, row.name, row.team, frozenset(parts)))
        built = {
            build.snapshot_id: template
            for template in self.templates.all()
            for build in template.builds
            if build.snapshot_id is not None
        }
        templates: dict[str, frozenset[str]] = {}
        for snapshot in self.inventory.snapshots():
            used = frozenset(
                {f"memory:{snapshot.snapshot_id}", *(f"layer:{layer_id}" for layer_id in snapshot.stack)}
            )
            if owner := built.get(snapshot.snapshot_id):
                templates[owner.template_id] = templates.get(owner.template_id, frozenset()) | used
            else:
                found.append(Used("snapshot", snapshot.snapshot_id, snapshot.name, snapshot.team, used))
        for one in self.templates.all():
            used = templates.get(one.template_id, frozenset())
            found.append(Used("template", one.template_id, one.name, one.team, used))
        for volume in self.volumes.list():
            own = frozenset({f"changing:{volume.volume_id}"})
            found.append(Used("volume", volume.volume_id, volume.name, volume.team, own))
        for digest, image in images.items():
            trees = frozenset(f"tree:{lower}" for lower in image.lowers)
            found.append(Used("image", digest, image.info.name, image.info.pulled_for, trees))
        if team is None:
            return found
        foreign = {f"layer:{layer_id}" for layer_id in self._brought_to(team)}
        return [user._replace(parts=user.parts - foreign) for user in found if user.team == team]

    def _brought_to(self, team: str) -> set[str]:
        """The layers from other teams' snapshots, which count towards no quota of this team."""
        return {id_ for row in self.inventory.snapshots() if row.team != team for id_ in row.stack}

    def _size(self, part: str, memories: Mapping[str, int]) -> int:
        kind, _, name = part.partition(":")
        if kind == "memory":
            return memories[name]
        if kind == "layer":
            return self.sizes.of_layer(name)
        return self.sizes.of_tree(Path(name)) if kind == "tree" else self.sizes.of(name)


def _linked(checkpoints: Mapping[str, Path]) -> dict[str, dict[str, int]]:
    """The files of each checkpoint that others may share, by inode: a sleeper's snapshot does."""
    found: dict[str, dict[str, int]] = {}
    for part, place in checkpoints.items():
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            stats = [entry.stat(follow_symlinks=False) for entry in entries]
            found[part] = {f"file:{one.st_ino}": one.st_blocks * 512 for one in stats if one.st_nlink > 1}
    return found


def _with_links(user: Used, linked: Mapping[str, Mapping[str, int]], sizes: dict[str, int]) -> Used:
    """The user with such files as parts of their own. The checkpoint's size shrinks by their sizes."""
    files = {name: size for part in user.parts for name, size in linked.get(part, {}).items()}
    for part in user.parts:
        sizes[part] = max(0, sizes[part] - sum(linked.get(part, {}).values()))
    sizes.update(files)
    return user._replace(parts=user.parts | files.keys())
