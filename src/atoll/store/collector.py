"""Removes from a store what no record needs any more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from atoll.errors import StoreError
from atoll.store.catalog import condemned_name, condemned_packs, put_index
from atoll.store.contents import Content
from atoll.store.frames import Pack, PackIndex, pack_name
from atoll.store.lease import Lease
from atoll.store.live_frames import LiveFrames
from atoll.store.store import Store, Told
from atoll.store.writer import PACK_BYTES

WASTE = 0.25
"""A pack with a bigger part that nothing needs is written anew without it."""
MERGED_INDEXES, MERGED_PACKS = 64, 1024
"""So many small indexes become one, of so many packs or a few more."""


class Collected(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection did, in packs and bytes.

    ``condemned`` are removed by a later collection when the grace is over, unless something needs them again.
    """

    removed: int = 0
    removed_bytes: int = 0
    condemned: int = 0
    spared: int = 0
    moved_bytes: int = 0


@dataclass(kw_only=True, eq=False)
class _Counts:
    removed: int = 0
    removed_bytes: int = 0
    condemned: int = 0
    spared: int = 0
    moved_bytes: int = 0


@dataclass(kw_only=True, eq=False, repr=False)
class Collector:
    """Collects the packs of one owner, beside others that write and read. Of collectors, one at a time works.

    What nothing needs is first condemned. From then on no writer relies on it. It is removed once the grace is
    over and still nothing needs it. So a writer that took it for granted has either written its record by
    then, or looks again before it does.

    Args:
        store: The owner's part of the store.
        waste: See ``WASTE``. 0 keeps nothing that is not needed.
    """

    store: Store
    waste: float = WASTE
    _did: _Counts = field(default_factory=_Counts, init=False)
    _began_s: float = field(default=0.0, init=False)
    _live: LiveFrames = field(init=False)

    def __post_init__(self) -> None:
        self._live = LiveFrames(self.store.catalog)

    def collect(self, told: Told = lambda _: None) -> Collected:
        """Condemn, move and remove.

        Args:
            told: Called with a number of bytes after each part. What it raises ends the work, at any point.

        Raises:
            InUseError: Another collector works, or has died within the last hour.
            DamagedError: A record or its list of contents cannot be read. Then nothing is removed, since
                nobody knows what it needs.
            StoreError: The store cannot be reached.
        """
        self._did = _Counts()
        # A grace that ends later is not over yet: records may have come since this collection has read them.
        self._began_s = self.store.now_s()
        with Lease(self.store) as lease:
            self._collect(lease, told)
        did = self._did
        return Collected(
            removed=did.removed,
            removed_bytes=did.removed_bytes,
            condemned=did.condemned,
            spared=did.spared,
            moved_bytes=did.moved_bytes,
        )

    def _collect(self, lease: Lease, told: Told) -> None:
        def renewing(count: int) -> None:
            lease.renew()
            told(count)

        catalog = self.store.catalog
        catalog.refresh()
        self._live.set(self._needed(renewing))
        live = self._live.sizes()
        removable = self._unknown()
        for pack, since_s in catalog.packs().items():
            lease.renew()
            size, needed = live[pack]
            if since_s is None:
                if needed == 0:
                    self._condemn(pack)
                elif size - needed > self.waste * size:
                    self._move(pack, renewing)
            elif needed:
                self._remove_marks(pack)
                self._did.spared += 1
            elif self._is_over(since_s):
                removable[pack] = size
        self._remove(removable, lease)
        self._merge(lease)
        catalog.forget_lost_pieces()

    def _is_over(self, since_s: float) -> bool:
        return self._began_s - since_s > self.store.grace_s

    def _needed(self, told: Told) -> Iterator[bytes]:
        """Yield the ids of all frames that a record needs."""
        with self.store.reading(told) as reader:
            for record in self.store.records.list():
                if record.manifest is not None:
                    yield from record.manifest.frame_ids()
                    frames = self.store.manifest(record, reader).frames
                    yield from Content(0, frames).frame_ids()

    def _unknown(self) -> dict[bytes, int]:
        """Condemn packs without an index, whose writers ended before they wrote it. Returns the removable ones."""
        catalog = self.store.catalog
        known, marked = catalog.packs(), condemned_packs(self.store.objects, self.store.key.domain)
        removable = {}
        for one in self.store.objects.list(f"{self.store.key.domain}/packs"):
            pack = bytes.fromhex(one.name.rpartition("/")[2])
            if pack in known:
                continue
            if pack not in marked:
                self._condemn(pack)
            elif self._is_over(marked[pack]):
                removable[pack] = one.size
        return removable

    def _condemn(self, pack: bytes) -> None:
        # rounded up, so that the grace is never shorter
        name = condemned_name(self.store.key.domain, pack, self.store.now_s() + 1)
        self.store.objects.put(name, b"")
        self._did.condemned += 1

    def _move(self, pack: bytes, told: Told) -> None:
        """Write the needed frames of a pack into a new one, and condemn the old one."""
        frames = self._live.of(pack)
        new = Pack(self.store.key)
        with self.store.reading(told) as reader:
            for frame, data in reader.frames(frames):
                new.add(frame, data)
                if new.size >= PACK_BYTES:
                    self._put(new)
                    new = Pack(self.store.key)
        if new.entries:
            self._put(new)
        self._condemn(pack)

    def _put(self, pack: Pack) -> None:
        self.store.objects.put(pack_name(self.store.key.domain, pack.id), pack.data())
        self._index([pack.index()])
        self._did.moved_bytes += pack.size

    def _index(self, packs: list[PackIndex]) -> None:
        name = put_index(self.store.objects, self.store.key, packs)
        self.store.catalog.add(name, packs)

    def _remove(self, removable: Mapping[bytes, int], lease: Lease) -> None:
        """Remove packs, from their indexes first: what is left after a crash is a pack without an index."""
        for name, packs in self.store.catalog.indexes().items():
            if packs & removable.keys():
                lease.renew()
                self._replace([name], packs - removable.keys())
        for pack, size in removable.items():
            lease.renew()
            self.store.objects.remove([pack_name(self.store.key.domain, pack)])
            self._remove_marks(pack)
            self.store.catalog.forget(pack)
            self._did.removed += 1
            self._did.removed_bytes += size

    def _merge(self, lease: Lease) -> None:
        """Put one index in the place of many small ones, so that a home that knows nothing yet reads few."""
        catalog = self.store.catalog
        small = {name: packs for name, packs in catalog.indexes().items() if len(packs) < MERGED_PACKS}
        if len(small) < MERGED_INDEXES:
            return
        lease.renew()
        together: list[str] = []
        packs: set[bytes] = set()
        for name, more in small.items():
            together.append(name)
            packs |= more
            if len(packs) >= MERGED_PACKS:
                self._replace(together, packs)
                together, packs = [], set()
        if len(together) > 1:
            self._replace(together, packs)

    def _replace(self, names: list[str], packs: set[bytes]) -> None:
        """Put one index with these packs in the place of others."""
        catalog = self.store.catalog
        if packs:
            self._index([PackIndex(pack, catalog.entries(pack)) for pack in sorted(packs)])
        self.store.objects.remove(names)
        for name in names:
            catalog.forget_index(name)

    def _remove_marks(self, pack: bytes) -> None:
        prefix = f"{self.store.key.domain}/condemned"
        names = [one.name for one in self.store.objects.list(prefix)]
        self.store.objects.remove(name for name in names if name.startswith(f"{prefix}/{pack.hex()}-"))


def stored_bytes(store: Store) -> int:
    """Return the bytes of all objects of an owner, what is condemned included."""
    return sum(one.size for one in store.objects.list(store.key.domain))


def erase_all(store: Store) -> None:
    """Remove all objects of an owner. Whoever still reads or writes there fails.

    Raises:
        StoreError: Some are left.
    """
    names = [one.name for one in store.objects.list(store.key.domain)]
    # Records first, so that none names what is gone.
    store.objects.remove(sorted(names, key=lambda name: "/records/" not in name))
    if next(iter(store.objects.list(store.key.domain)), None) is not None:
        raise StoreError("something was written to the store while it was erased", hint="erase it again")
