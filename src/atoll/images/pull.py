"""Pulls an image from its registry into a home's catalog."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import platform
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from atoll.errors import ImageNotFoundError, ImagePullError, QuotaError, UnsupportedError
from atoll.host import remove_tree, sync_tree, to_the_end, tree_bytes
from atoll.images.catalog import BUILDING, ROOTFS, Catalog, Image, Named, top_first
from atoll.images.holding import held
from atoll.images.near import did_you_mean, misspelt, with_near_names
from atoll.images.owners import Owner, stacked_owners, write_owners
from atoll.images.puller import Blob, Puller, PullSettings, Resolved, RunConfig, TooBigError, Unpacked
from atoll.images.realm import Realm, realm_of, realms_of
from atoll.images.reference import directory_name, pinned, repository
from atoll.images.seams import may_need_seam, seam_name
from atoll.types import ImageAccess, ImageInfo, Progress

Stacking = Literal["trusted", "user", "none"]
"""The overlay attributes that this home reads: the host root's, a user namespace's, or none."""

_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
_TRIES = 3
# The guest agent sets each of these owners at each boot.
_MOST_OWNERS = 50_000
_LAYERS_LOCK = ".lock"
# The fraction of a pull that downloads. The rest unpacks.
_FETCHED = 0.7

Report = Callable[[Progress], None]


class _Layer(NamedTuple):
    """A layer to unpack: its directory, the digest of its content, and its download."""

    directory: str
    diff_id: str
    blob: Blob


@dataclass(frozen=True)
class _Asked:
    """A requested pull: the name, the rights, the realm of the result, and its most bytes on the disk."""

    name: str
    access: ImageAccess
    realm: Realm
    most_bytes: int | None


class Pulls:
    """Pulls images: each layer once, by its content.

    Args:
        catalog: Where images are stored.
        settings: How they are pulled.
        stacking: How layers are stacked here. With ``"none"`` they are merged, separately for each image.
    """

    def __init__(self, catalog: Catalog, settings: PullSettings, stacking: Stacking) -> None:
        self._catalog = catalog
        self._settings = settings
        self._stacking = stacking
        self._puller = Puller(settings)
        self._done_with: dict[Path, set[Path]] = {}

    async def pull(
        self, name: str, progress: Report, access: ImageAccess, *, newest: bool, most_bytes: int | None = None
    ) -> Image:
        """Return the image with that name.

        With ``newest`` it is the registry's current one, otherwise of any age. If several callers ask at
        once, in any processes, one of them pulls and the others wait. The next pull continues after an error
        or a cancellation.

        Raises:
            ImageNotFoundError: Its registry has none.
            QuotaError: It would add more than ``most_bytes`` to the disk.
            UnsupportedError: It has none for this machine.
            ImagePullError: It could not be pulled, or is invalid.
            NoSpaceError: The disk is full.
        """
        asked = _Asked(name, access, realm_of(access), most_bytes)
        key = asked.realm.key(name)
        lock = self._catalog.downloads.with_name(".pulls") / hashlib.sha256(key.encode()).hexdigest()[:20]
        async with held(lock, progress, f"waiting for another pull of {name}"):
            try:
                if not newest and (image := self._catalog.get(key)):
                    return image
                near = did_you_mean(
                    misspelt(name, _known(self._catalog, access))
                )  # the registry may be slow to say that
                progress(Progress(step=f"resolving {name}{near and f': {near}'}", whole=0.0))
                resolved = await self._resolved(name, access)
                self._check(name, resolved)
                return await self._have(asked, resolved, progress)
            finally:
                # Otherwise there would be one for each name that was ever requested.
                lock.unlink(missing_ok=True)

    async def _resolved(self, name: str, access: ImageAccess) -> Resolved:
        try:
            return await self._puller.resolve(name, access)
        except (ImageNotFoundError, ImagePullError) as error:
            raise with_near_names(error, name, _known(self._catalog, access)) from None

    async def _have(self, asked: _Asked, resolved: Resolved, progress: Report) -> Image:
        fetched: list[Blob] = []
        with self._among_pulls(self._downloads(asked)) as done_with:
            try:
                image = await self._brought(asked, resolved, fetched, progress)
            except BaseException:
                # Unfinished downloads count towards no quota. So a team starts again, and the owner of the
                # home continues.
                if asked.access.team is not None:
                    done_with |= self._files(asked, fetched)
                raise
            done_with |= self._files(asked, fetched)
            return image

    @contextlib.contextmanager
    def _among_pulls(self, directory: Path) -> Iterator[set[Path]]:
        """Keep a directory of downloads while pulls use it.

        The last of these pulls removes files that no pull needs, because until then another pull may use
        them. It also removes the directory if it is empty.
        """
        done_with = self._done_with.setdefault(directory, set())
        fd = _shared(directory)
        try:
            yield done_with
        finally:
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    for path in self._done_with.pop(directory, ()):
                        path.unlink(missing_ok=True)
                    with contextlib.suppress(OSError):  # a later pull continues from the files in it
                        directory.rmdir()
            finally:
                os.close(fd)

    async def _brought(
        self, asked: _Asked, resolved: Resolved, fetched: list[Blob], progress: Report
    ) -> Image:
        digest = asked.realm.directory(resolved.digest)
        for _ in range(_TRIES):
            if not self._catalog.get(digest):
                missing = self._missing(asked.realm, resolved)
                fetched += [layer.blob for layer in missing]
                await self._fetch(asked, missing, progress)
            # An unpacked layer must get its record before another process collects unused layers.
            async with held(self.layers_lock, progress, "waiting for another image"):
                if image := self._catalog.get(digest):
                    return self._named(asked, image)
                missing = self._missing(asked.realm, resolved)
                if all(self._blob(asked, layer.blob).exists() for layer in missing):
                    image = await self._unpack(asked, resolved, progress)
                    return self._named(asked, image)
        raise ImagePullError(
            f"the layers of {asked.name} disappear while they are pulled", hint="try again", retryable=True
        )

    @property
    def layers_lock(self) -> Path:
        """Return the lock that is held while layers are added to an image or collected."""
        return self._catalog.layers / _LAYERS_LOCK

    def _named(self, asked: _Asked, image: Image) -> Image:
        self._catalog.name(asked.realm.key(asked.name), Named(digest=image.info.digest))
        return image

    def _files(self, asked: _Asked, blobs: Iterable[Blob]) -> set[Path]:
        """Return the files of blobs on the disk, complete or partial."""
        whole = {self._blob(asked, blob) for blob in blobs}
        return whole | {path.with_name(f"{path.name}.part") for path in whole}

    def _check(self, name: str, resolved: Resolved) -> None:
        config = resolved.config
        here = _ARCHITECTURES.get(platform.machine(), platform.machine())
        if config.architecture not in ("", here) or config.os not in ("", "linux"):
            raise UnsupportedError(
                f"the image {name} is for {config.os}/{config.architecture}, this machine is linux/{here}",
                hint="use an image or a tag for this machine's architecture",
            )
        if len(config.rootfs.diff_ids or []) != len(resolved.layers):
            raise ImagePullError(
                f"the image {name} has {len(resolved.layers)} layers and describes "
                f"{len(config.rootfs.diff_ids or [])}",
                hint="the image is damaged: use another one",
            )
        if (total := sum(blob.size for blob in resolved.layers)) > self._settings.most_bytes:
            raise ImagePullError(
                f"the image {name} has {total} bytes to download, which is more than an image may have",
                hint="to allow it, set ATOLL_IMAGE_GIB to a higher number, then run `atoll stop`",
            )

    def _missing(self, realm: Realm, resolved: Resolved) -> list[_Layer]:
        """Return the layers to unpack, lowest first, each content once."""
        ids = resolved.config.rootfs.diff_ids or []
        rows = [
            _Layer(realm.directory(diff_id), diff_id, blob)
            for diff_id, blob in zip(ids, resolved.layers, strict=True)
        ]
        if self._stacking == "none":
            return rows
        layers = {row.directory: row for row in rows}.values()
        return [layer for layer in layers if not (self._catalog.layers / layer.directory).is_dir()]

    def _blob(self, asked: _Asked, blob: Blob) -> Path:
        return self._downloads(asked) / directory_name(blob.digest)

    def _downloads(self, asked: _Asked) -> Path:
        return asked.realm.downloads(self._catalog.downloads, repository(asked.name))

    async def _fetch(self, asked: _Asked, missing: list[_Layer], progress: Report) -> None:
        blobs = list({layer.blob.digest: layer.blob for layer in missing}.values())
        total = sum(blob.size for blob in blobs)
        if asked.most_bytes is not None and total > asked.most_bytes:
            raise _no_room(asked)

        def came(count: int) -> None:
            step = f"downloading {asked.name}, {len(blobs)} layer{'s' * (len(blobs) != 1)}"
            whole = round(_FETCHED * count / max(1, total), 4)
            progress(Progress(step=step, done=count, total=total, unit="bytes", whole=whole))

        if blobs:
            came(0)
            await self._puller.fetch(asked.name, asked.access, blobs, self._downloads(asked), came)

    async def _unpack(self, asked: _Asked, resolved: Resolved, progress: Report) -> Image:
        name, missing = asked.name, self._missing(asked.realm, resolved)
        left = _Left(self._most_bytes(asked), self._settings.most_entries)
        flat = self._catalog.directory / asked.realm.directory(resolved.digest) / ROOTFS
        owners: dict[str, tuple[int, int]] = {}
        if self._stacking == "none":
            await asyncio.to_thread(_fresh, flat)
        for index, layer in enumerate(missing):
            progress(_unpacking(name, index, len(missing)))
            if self._stacking == "none":
                unpacked = await self._layer_into(asked, flat, layer, left)
                stacked_owners(owners, unpacked.owners)
            else:
                await self._layer(asked, layer, left)
        if self._stacking == "none":
            await asyncio.to_thread(sync_tree, flat)
        progress(_unpacking(name, len(missing), len(missing)))
        if self._stacking == "none":
            write_owners(flat.parent, _as_rows(name, owners))
        ids = [asked.realm.directory(diff_id) for diff_id in resolved.config.rootfs.diff_ids or []]
        if not ids:
            ids = [self._empty()]
        if self._stacking != "none":
            ids += await self._seam(name, ids)
        info = await asyncio.to_thread(self._record, asked, resolved, ids, flat)
        image = self._catalog.get(info.digest)
        assert image, "just recorded"
        return image

    async def _layer(self, asked: _Asked, layer: _Layer, left: _Left) -> None:
        async with self._aside(layer.directory) as inside:
            await self._layer_into(asked, inside, layer, left)
            await self._settle(inside)

    @contextlib.asynccontextmanager
    async def _aside(self, layer: str) -> AsyncIterator[Path]:
        """Make an empty directory to build a layer in.

        The directory does not count as a layer, and is erased afterwards.
        """
        aside = Path(tempfile.mkdtemp(prefix=BUILDING, dir=self._catalog.layers))
        try:
            inside = aside / layer
            inside.mkdir(mode=0o755)
            inside.chmod(0o755)
            yield inside
        finally:
            await to_the_end(asyncio.to_thread(remove_tree, aside))

    async def _settle(self, inside: Path) -> None:
        """Make a finished directory a layer. Its content is complete, and is written to the disk here."""
        await asyncio.to_thread(sync_tree, inside)
        os.rename(inside, self._catalog.layers / inside.name)

    async def _layer_into(self, asked: _Asked, directory: Path, layer: _Layer, left: _Left) -> Unpacked:
        wanted = {
            "digest": layer.blob.digest,
            "diff_id": layer.diff_id,
            "most_bytes": left.bytes,
            "most_entries": left.entries,
            "overlay_prefix": "" if self._stacking == "none" else f"{self._stacking}.",
        }
        try:
            unpacked = await self._puller.unpack(asked.name, self._blob(asked, layer.blob), directory, wanted)
        except TooBigError:
            if self._most_bytes(asked) == self._settings.most_bytes:
                raise
            raise _no_room(asked) from None
        left.take(unpacked.bytes, unpacked.entries)
        return unpacked

    def _most_bytes(self, asked: _Asked) -> int:
        """Return how large its layers may be, unpacked."""
        most_bytes = self._settings.most_bytes
        return most_bytes if asked.most_bytes is None else min(most_bytes, asked.most_bytes)

    def _record(self, asked: _Asked, resolved: Resolved, ids: list[str], flat: Path) -> ImageInfo:
        stacked = [self._catalog.layers / layer for layer in ids] if self._stacking != "none" else [flat]
        told = resolved.config.config or RunConfig()
        info = ImageInfo(
            name=asked.name,
            digest=asked.realm.directory(resolved.digest),
            size_bytes=sum(tree_bytes(path) for path in set(stacked)),
            created_at=time.time(),
            user=told.user or "root",
            cwd=told.working_dir or "/",
            env=environment_of(told.env or []),
            entrypoint=told.entrypoint or [],
            cmd=told.cmd or [],
            layers=ids if self._stacking != "none" else [],
            pinned=pinned(asked.name, resolved.digest),
            team=asked.realm.team,
            pulled_for=asked.access.team,
        )
        self._catalog.record(info)
        return info

    async def _seam(self, name: str, ids: Sequence[str]) -> list[str]:
        """Return the seam that these layers need on top, if any."""
        prefix, layers = f"{self._stacking}.", top_first(ids)
        if not may_need_seam((self._catalog.layers / layer for layer in layers), prefix):
            return []
        seam = seam_name(ids)
        if not (self._catalog.layers / seam).is_dir():
            async with self._aside(seam) as inside:
                if not await self._puller.seam(name, self._catalog.layers, layers, inside, prefix):
                    return []
                await self._settle(inside)
        return [seam]

    def _empty(self) -> str:
        """Return the layer of an image that has none."""
        layer = f"sha256-{hashlib.sha256(b'').hexdigest()}"
        if self._stacking != "none":
            (self._catalog.layers / layer).mkdir(mode=0o755, exist_ok=True)
        return layer


class _Left:
    """How much the layers of one image may still have, together."""

    def __init__(self, most_bytes: int, most_entries: int) -> None:
        self.bytes, self.entries = most_bytes, most_entries

    def take(self, count_bytes: int, entries: int) -> None:
        # Zero left must not be read as no bound.
        self.bytes, self.entries = max(1, self.bytes - count_bytes), max(0, self.entries - entries)


def _known(catalog: Catalog, access: ImageAccess) -> list[str]:
    """Return the names that are here, as the caller may write them."""
    names, realms = catalog.names(), realms_of(access)
    return [key.removeprefix(realm.key("")) for key in names for realm in realms if realm.has(key)]


def _shared(directory: Path) -> int:
    """Return a descriptor of a directory, made if missing, with the shared lock on it."""
    while True:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileNotFoundError):  # another process has just removed it
            fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
            fcntl.flock(fd, fcntl.LOCK_SH)
            if directory.exists() and os.path.samestat(directory.stat(), os.fstat(fd)):
                return fd
            os.close(fd)


def _no_room(asked: _Asked) -> QuotaError:
    return QuotaError(
        f"the image {asked.name} needs more than the {(asked.most_bytes or 0) >> 20} MiB of disk that are left "
        f"in the quota of team {asked.access.team!r}",
        hint="kill sandboxes, delete snapshots, or use a smaller image",
    )


def environment_of(lines: Sequence[str]) -> dict[str, str]:
    """Return the variables of an image, without invalid ones."""
    pairs = (line.partition("=") for line in lines)
    return {name: value for name, equals, value in pairs if name and equals and "\0" not in name + value}


def _as_rows(name: str, owners: dict[str, tuple[int, int]]) -> list[Owner]:
    if len(owners) > _MOST_OWNERS:
        raise UnsupportedError(
            f"the image {name} has {len(owners)} files of users other than root, but this user has only one id",
            hint="run `atoll doctor`, which says how to get more ids",
        )
    return [(path, uid, gid) for path, (uid, gid) in owners.items()]


def _fresh(flat: Path) -> None:
    remove_tree(flat)
    flat.mkdir(mode=0o755, parents=True)
    flat.chmod(0o755)


def _unpacking(name: str, done: int, total: int) -> Progress:
    whole = round(_FETCHED + (1 - _FETCHED) * done / max(1, total), 4)
    return Progress(step=f"unpacking {name}", done=done, total=total, unit="layers", whole=whole)
