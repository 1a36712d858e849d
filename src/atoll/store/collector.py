"""Removes from a store what no record needs any more."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

import msgspec

from atoll.errors import DamagedError
from atoll.store.catalog import condemned_name, condemned_packs, put_index
from atoll.store.contents import Content
from atoll.store.frames import Pack, PackIndex, pack_name, pack_of
from atoll.store.lease import Lease
from atoll.store.live_frames import LiveFrames
from atoll.store.objects import MissingObjectError
from atoll.store.store import Store, Told
from atoll.store.writer import PACK_BYTES

WASTE = 0.25
"""A pack with a bigger part that nothing needs is written anew without it."""
_log = logging.getLogger(__name__)
MERGED_INDEXES, MERGED_PACKS = 64, 1024
"""So many small indexes become one, of so many packs or a few more."""


class Collected(msgspec.Struct, kw_only=True):
    """What a collection did, in packs and bytes.

    ``condemned`` are removed by a later collection when the grace is over, unless something needs them again.
    """

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
    _did: Collected = field(default_factory=Collected, init=False)
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
        self._did = Collected()
        # A grace that ends later is not over yet: records may have come since this collection has read them.
        self._began_s = self.store.now_s()
        with Lease(self.store) as lease:
            self._collect(lease, told)
        return self._did

    def _collect(self, lease: Lease, told: Told) -> None:
        def renewing(count: int) -> None:
            lease.renew()
            told(count)

        catalog = self.store.catalog
        # The packs first: an index comes after its pack, so a pack of this list without one has lost its writer.
        listed = dict(self._listed())
        catalog.find(listed)
        catalog.refresh()
        self._live.set(self._needed(renewing))
        live = self._live.sizes()
        marks = condemned_packs(self.store.objects, self.store.key.domain)
        removable, spared = self._unknown(listed, marks), []
        for pack in catalog.packs():
            lease.renew()
            since_s = marks.get(pack)
            if pack not in live:
                continue  # its writer has just come
            size, needed = live[pack]
            if pack not in listed and self._is_lost(pack):
                if needed:
                    raise DamagedError(
                        f"the pack {pack.hex()} is missing in the store, and a record needs it"
                    )
                removable[pack] = 0
            elif since_s is None:
                if needed == 0:
                    self._condemn(pack)
                elif size - needed > self.waste * size:
                    self._move(pack, renewing)
            elif needed:
                spared.append(pack)
            elif self._is_over(since_s):
                removable[pack] = size
        self._did.spared += len(spared)
        self._remove(removable, lease)
        self._remove_marks(
            [
                *spared,
                *(
                    pack
                    for pack, since_s in marks.items()
                    if pack not in listed and self._began_s - since_s > 2 * self.store.grace_s
                ),
            ]
        )
        self._merge(lease)
        catalog.forget_lost_pieces()

    def _listed(self) -> Iterator[tuple[bytes, int]]:
        """Yield the packs that are there, with their sizes in bytes."""
        for one in self.store.objects.list(f"{self.store.key.domain}/packs"):
            pack = pack_of(one.name)
            if pack is not None:
                yield pack, one.size

    def _is_lost(self, pack: bytes) -> bool:
        """Whether a pack that was not listed is not there. It may have come since."""
        try:
            self.store.objects.read(pack_name(self.store.key.domain, pack), 0, 1)
        except MissingObjectError:
            return True
        return False

    def _is_over(self, since_s: float) -> bool:
        return self._began_s - since_s > self.store.grace_s

    def _needed(self, told: Told) -> Iterator[bytes]:
        """Yield the ids of all frames that a record needs, and remove what erased ones have left."""
        with self.store.reading(told) as reader:
            for record in self.store.records.all():
                if record.manifest is not None:
                    yield from record.manifest.frame_ids()
                    frames = self.store.manifest(record, reader).frames
                    yield from Content(0, frames).frame_ids()
                elif record.is_erased and self._is_over(record.changed_at):
                    self.store.records.sweep(record)

    def _unknown(self, listed: Mapping[bytes, int], marks: Mapping[bytes, float]) -> dict[bytes, int]:
        """Condemn packs without an index, whose writers ended before they wrote it. Returns the removable ones."""
        known = self.store.catalog.packs()
        removable = {}
        for pack, size in listed.items():
            if pack in known:
                continue
            if pack not in marks:
                self._condemn(pack)
            elif self._is_over(marks[pack]):
                removable[pack] = size
        return removable

    def _condemn(self, pack: bytes) -> None:
        # rounded up, so that the grace is never shorter
        name = condemned_name(self.store.key.domain, pack, self.store.now_s() + 1)
        self.store.objects.put(name, b"")
        self._did.condemned += 1

    def _move(self, pack: bytes, told: Told) -> None:
        """Write the needed frames of a pack into a new one, and condemn the old one."""
        new = Pack(self.store.key)
        try:
            with self.store.reading(told) as reader:
                for frame, data in reader.frames(self._live.of(pack)):
                    new.add(frame, data)
                    if new.size >= PACK_BYTES:
                        self._put(new)
                        new = Pack(self.store.key)
        except DamagedError as error:
            # It stays as it is, for whoever can mend it. The rest is collected.
            _log.error("the pack %s stays in the store: %s", pack.hex(), error)
            return
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
        # The marks stay: a home that has read the indexes before still sees that these packs are condemned.
        for pack, size in removable.items():
            lease.renew()
            self.store.objects.remove([pack_name(self.store.key.domain, pack)])
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
        """Put one index with these packs in the place of others, as they are in the store."""
        catalog = self.store.catalog
        kept: dict[bytes, PackIndex] = {}
        for name in names:
            try:
                kept |= {each.pack: each for each in catalog.read_index(name) if each.pack in packs}
            except MissingObjectError:
                return  # the next collection finds what is in its place
        if kept:
            self._index(list(kept.values()))
        self.store.objects.remove(names)
        for name in names:
            catalog.forget_index(name)

    def _remove_marks(self, packs: Iterable[bytes]) -> None:
        wanted = {pack.hex() for pack in packs}
        if wanted:
            names = [one.name for one in self.store.objects.list(f"{self.store.key.domain}/condemned")]
            self.store.objects.remove(
                name for name in names if name.rpartition("/")[2].partition("-")[0] in wanted
            )


def stored_bytes(store: Store) -> int:
    """Return the bytes of all objects of an owner, what is condemned included."""
    return sum(one.size for one in store.objects.list(store.key.domain))
