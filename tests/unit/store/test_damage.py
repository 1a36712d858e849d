"""Whatever of a store is changed or missing is found, and named."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.unit.store.stores import MemoryObjects, get, noise, put

from atoll.errors import DamagedError, StoreError
from atoll.store import Store, StoredObject, StoreKey

DATA = noise(1, 64)


def a_store() -> tuple[Store, MemoryObjects]:
    objects = MemoryObjects()
    store = Store(objects=objects, key=StoreKey.new())
    put(store, "a", DATA)
    return store, objects


def again(store: Store) -> Store:
    """The same store, seen by a home that knows nothing of it yet."""
    return Store(objects=store.objects, key=store.key)


@pytest.mark.parametrize("kind", ["packs", "indexes", "records"])
@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_flipped_bit_is_found_and_named(kind: str, place: float) -> None:
    store, objects = a_store()
    (name,) = (name for name in objects.objects if f"/{kind}/" in name and objects.objects[name])
    data = bytearray(objects.objects[name])
    data[int(place * (len(data) - 1))] ^= 4
    objects.objects[name] = bytes(data)
    with pytest.raises(DamagedError) as caught:
        get(again(store), "a")
    assert name.rpartition("/")[2] in str(caught.value)


@pytest.mark.parametrize("kind", ["packs", "indexes"])
def test_a_missing_object_is_found_and_named(kind: str) -> None:
    store, objects = a_store()
    (name,) = (name for name in objects.objects if f"/{kind}/" in name)
    del objects.objects[name]
    with pytest.raises(DamagedError, match="is missing") as caught:
        get(again(store), "a")
    if kind == "packs":
        assert name.rpartition("/")[2] in str(caught.value)


def test_objects_that_changed_places_are_found() -> None:
    store, objects = a_store()
    put(store, "b", noise(2, 64))
    one, other = (f"{store.key.domain}/records/snapshot/{each}" for each in "ab")
    objects.objects[one], objects.objects[other] = objects.objects[other], objects.objects[one]
    with pytest.raises(DamagedError, match="records/snapshot/a"):
        get(again(store), "a")


def test_a_pack_that_is_cut_is_found() -> None:
    store, objects = a_store()
    (name,) = (name for name in objects.objects if "/packs/" in name)
    objects.objects[name] = objects.objects[name][:-100]
    with pytest.raises(DamagedError, match="not as it was written"):
        get(again(store), "a")


def test_a_lost_catalog_is_made_anew(tmp_path_factory: pytest.TempPathFactory) -> None:
    objects, key = MemoryObjects(), StoreKey.new()
    path = tmp_path_factory.mktemp("catalog") / "catalog.db"
    store = Store(objects=objects, key=key, catalog_path=path)
    put(store, "a", DATA)
    store.close()
    path.write_bytes(b"no database" * 1000)
    store = Store(objects=objects, key=key, catalog_path=path)
    assert get(store, "a") == DATA
    store.close()


def test_an_index_that_is_listed_and_not_there_ends_the_search() -> None:
    store, objects = a_store()

    class Ghosts(MemoryObjects):
        def list(self, prefix: str) -> Iterator[StoredObject]:
            yield from super().list(prefix)
            if prefix.endswith("/indexes"):
                yield StoredObject(f"{prefix}/{'0' * 32}", 1)

    ghosts = Ghosts()
    ghosts.objects = objects.objects
    with pytest.raises(StoreError, match="does not have it"):
        get(Store(objects=ghosts, key=store.key), "a")
