"""Removes from a store what no record needs any more."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from atoll.errors import StoreError
from atoll.store.catalog import condemned_name, index_name, sealed_index
from atoll.store.contents import Content
from atoll.store.frames import Pack, pack_name
from atoll.store.store import Store, Told
from atoll.store.writer import PACK_BYTES

WASTE = 0.25
"""A pack with a bigger part that nothing needs is written anew without it."""


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
    """Collects the packs of one owner, beside others that write, read and collect.

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

    def collect(self, told: Told = lambda _: None) -> Collected:
        """Condemn, move and remove.

        Args:
            told: Called with a number of bytes after each part. What it raises ends the work, at any point.

        Raises:
            DamagedError: A record or its list of contents cannot be read. Then nothing is removed, since
                nobody knows what it needs.
            StoreError: The store cannot be reached.
        """
        self._did = _Counts()
        # A grace that ends later is not over yet: records may have come since this collection has read them.
        self._began_s = self.store.now_s()
        self.store.catalog.refresh()
        self.store.catalog.set_live(self._needed(told))
        live = self.store.catalog.live_bytes()
        self._condemn_unknown()
        for pack, since_s in self.store.catalog.packs().items():
            size, needed = live[pack]
            if since_s is not None:
                self._look_again(pack, since_s, size, needed)
            elif needed == 0:
                self._condemn(pack)
            elif size - needed > self.waste * size:
                self._move(pack, told)
        self.store.catalog.forget_lost_pieces()
        did = self._did
        return Collected(
            removed=did.removed,
            removed_bytes=did.removed_bytes,
            condemned=did.condemned,
            spared=did.spared,
            moved_bytes=did.moved_bytes,
        )

    def _needed(self, told: Told) -> Iterator[bytes]:
        """Yield the ids of all frames that a record needs."""
        with self.store.reading(told) as reader:
            for record in self.store.records.list():
                if record.manifest is not None:
                    yield from record.manifest.frame_ids()
                    frames = self.store.manifest(record, reader).frames
                    yield from Content(0, frames).frame_ids()

    def _look_again(self, pack: bytes, since_s: float, size: int, needed: int) -> None:
        if needed:
            self._remove_marks(pack)
            self._did.spared += 1
        elif self._began_s - since_s > self.store.grace_s:
            self._remove(pack)
            self._did.removed += 1
            self._did.removed_bytes += size

    def _condemn_unknown(self) -> None:
        """Condemn packs without an index: their writers ended before they wrote it."""
        domain, catalog = self.store.key.domain, self.store.catalog
        known = catalog.packs()
        marked = catalog.condemned()
        for one in self.store.objects.list(f"{domain}/packs"):
            pack = bytes.fromhex(one.name.rpartition("/")[2])
            if pack in known:
                continue
            if pack not in marked:
                self._condemn(pack)
            elif self._began_s - marked[pack] > self.store.grace_s:
                self._remove(pack)
                self._did.removed += 1
                self._did.removed_bytes += one.size

    def _condemn(self, pack: bytes) -> None:
        # rounded up, so that the grace is never shorter
        name = condemned_name(self.store.key.domain, pack, self.store.now_s() + 1)
        self.store.objects.put(name, b"")
        self._did.condemned += 1

    def _move(self, pack: bytes, told: Told) -> None:
        """Write the needed frames of a pack into a new one, and condemn the old one."""
        frames = self.store.catalog.live_frames(pack)
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
        key, objects = self.store.key, self.store.objects
        objects.put(pack_name(key.domain, pack.id), pack.data())
        objects.put(index_name(key.domain, pack.id), sealed_index(key, pack.id, pack.entries))
        self.store.catalog.add(pack.id, pack.entries)
        self._did.moved_bytes += pack.size

    def _remove(self, pack: bytes) -> None:
        """Remove a pack, its index first: what is left after a crash is a pack without an index."""
        domain = self.store.key.domain
        self.store.objects.remove([index_name(domain, pack)])
        self.store.objects.remove([pack_name(domain, pack)])
        self._remove_marks(pack)
        self.store.catalog.forget(pack)

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
