"""The collector removes what nothing needs, and nothing else, whatever happens beside it."""

from __future__ import annotations

import contextlib
import random

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.unit.store.stores import Clock, MemoryObjects, erase, get, noise, put

from atoll.errors import DamagedError, InUseError, StoreError
from atoll.store import Collector, Record, Store, StoreKey, collector, stored_bytes
from atoll.store.lease import Lease

GRACE_S = 3600.0


def a_store(
    objects: MemoryObjects | None = None, key: StoreKey | None = None, clock: Clock | None = None
) -> Store:
    return Store(
        objects=objects or MemoryObjects(), key=key or StoreKey.new(), grace_s=GRACE_S, now_s=clock or Clock()
    )


def test_what_nothing_needs_goes_after_the_grace_and_not_before() -> None:
    clock = Clock()
    store = a_store(clock=clock)
    put(store, "a", noise(1, 500))
    put(store, "b", noise(1, 100))
    erase(store, "a")
    done = Collector(store=store, waste=0).collect()
    assert (done.removed, done.moved_bytes > 0, done.condemned > 0) == (0, True, True)
    clock.now_s += GRACE_S
    assert Collector(store=store, waste=0).collect().removed == 0
    clock.now_s += 3
    assert Collector(store=store, waste=0).collect().removed > 0
    assert stored_bytes(store) < 7 * 65536 + 3000  # in whole frames
    assert get(store, "b") == noise(1, 100)
    erase(store, "b")
    Collector(store=store).collect()
    clock.now_s += GRACE_S + 3
    Collector(store=store).collect()
    assert not list(store.objects.list(f"{store.key.domain}/packs"))
    # What was removed stays marked, for homes that have read the indexes before.
    clock.now_s += 2 * GRACE_S + 3
    Collector(store=store).collect()
    assert [name for name in store.objects.list(store.key.domain) if "/records/lease/" not in name.name] == []


def test_what_was_condemned_and_is_needed_again_is_spared() -> None:
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    other = a_store(objects, store.key, clock)
    with store.writing() as writing:
        content = writing.writer.write(noise(1, 300))
        writing.writer.finish()
        # A collector comes by before the record is there.
        assert Collector(store=other).collect().condemned == 1
        clock.now_s += GRACE_S / 3
        writing.commit(Record(kind="snapshot", record_id="a", changed_at=0.0), {"memory": content})
    clock.now_s += GRACE_S
    assert Collector(store=other).collect().spared == 1
    assert get(store, "a") == noise(1, 300)
    assert not list(objects.list(f"{store.key.domain}/condemned"))


def test_a_writer_relies_on_nothing_that_is_condemned() -> None:
    clock = Clock()
    store = a_store(clock=clock)
    put(store, "a", noise(1, 300))
    erase(store, "a")
    Collector(store=store).collect()
    assert put(store, "b", noise(1, 300)) > 300 * 4096
    clock.now_s += GRACE_S + 3
    Collector(store=store).collect()
    assert get(store, "b") == noise(1, 300)


def test_a_writer_that_took_longer_than_the_grace_looks_again() -> None:
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    other = a_store(objects, store.key, clock)
    with store.writing() as writing:
        content = writing.writer.write(noise(1, 300))
        writing.writer.finish()
        Collector(store=other).collect()
        clock.now_s += GRACE_S + 3
        Collector(store=other).collect()
        with pytest.raises(StoreError, match="so long"):
            writing.commit(Record(kind="snapshot", record_id="a", changed_at=0.0), {"memory": content})
    put(store, "a", noise(1, 300))
    assert get(store, "a") == noise(1, 300)


def test_a_reader_goes_on_when_a_pack_was_moved_and_removed_below_it() -> None:
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    other = a_store(objects, store.key, clock)
    put(store, "a", noise(1, 400))
    put(store, "b", noise(1, 200))
    erase(store, "a")
    Collector(store=other, waste=0).collect()
    clock.now_s += GRACE_S + 3
    assert Collector(store=other, waste=0).collect().removed
    # its catalog still has the old places
    assert get(store, "b") == noise(1, 200)


def test_nothing_is_removed_while_a_record_cannot_be_read() -> None:
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    put(store, "a", noise(1, 100))
    put(store, "b", noise(2, 100))
    erase(store, "b")
    name = store.records.names()[0]
    objects.objects[name] = objects.objects[name][:-1] + bytes([objects.objects[name][-1] ^ 1])
    before = dict(objects.objects)
    for _ in range(2):
        with pytest.raises(DamagedError, match="records/snapshot/a"):
            Collector(store=store).collect()
        clock.now_s += 2 * GRACE_S
    assert {name: data for name, data in objects.objects.items() if "/lease/" not in name} == before


def test_one_collector_works_at_a_time_and_a_dead_one_is_followed_after_an_hour() -> None:
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    other = a_store(objects, store.key, clock)
    put(store, "a", noise(1, 100))
    erase(store, "a")
    with Lease(store), pytest.raises(InUseError):
        Collector(store=other).collect()
    objects.left = 1
    with pytest.raises(StoreError):
        Collector(store=store).collect()
    objects.left = None
    with pytest.raises(InUseError):
        Collector(store=other).collect()
    clock.now_s += 3601
    with Lease(store) as late:
        clock.now_s += 3601
        Collector(store=other).collect()
        with pytest.raises(InUseError):
            late.renew()
    Collector(store=other).collect()


def test_many_small_indexes_become_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collector, "MERGED_INDEXES", 8)
    monkeypatch.setattr(collector, "MERGED_PACKS", 16)
    clock, objects = Clock(), MemoryObjects()
    store = a_store(objects, clock=clock)
    kept = {f"r{number}": noise(number, 3) for number in range(30)}
    for name, data in kept.items():
        put(store, name, data)
    stale = a_store(objects, store.key, clock)
    stale.catalog.refresh()
    indexes = f"{store.key.domain}/indexes"
    assert len(list(objects.list(indexes))) == 30
    Collector(store=store).collect()
    assert len(list(objects.list(indexes))) == 2
    for one in (store, stale, a_store(objects, store.key, clock)):
        assert {name: get(one, name) for name in kept} == kept
    # What goes is taken out of the index of many.
    for name in list(kept)[::2]:
        erase(store, name)
    Collector(store=store).collect()
    clock.now_s += GRACE_S + 3
    assert Collector(store=stale).collect().removed == 15
    assert len(list(objects.list(f"{store.key.domain}/packs"))) == 15
    fresh = a_store(objects, store.key, clock)
    assert {name: get(fresh, name) for name in list(kept)[1::2]} == dict(list(kept.items())[1::2])
    assert len(fresh.catalog.packs()) == 15


class Histories(RuleBasedStateMachine):
    """Two homes store, erase and collect; both may die at any write. What is recorded stays readable."""

    @initialize(seed=st.integers(0, 1000))
    def begin(self, seed: int) -> None:
        self.clock, self.objects, self.key = Clock(), MemoryObjects(), StoreKey.new()
        self.stores = [a_store(self.objects, self.key, self.clock) for _ in range(2)]
        self.bounds = collector.MERGED_INDEXES, collector.MERGED_PACKS
        collector.MERGED_INDEXES, collector.MERGED_PACKS = 2, 3
        self.kept: dict[str, bytes] = {}
        self.random = random.Random(seed)

    @rule(
        home=st.integers(0, 1),
        name=st.sampled_from("abcd"),
        dies=st.none() | st.integers(0, 6),
        meanwhile=st.none() | st.tuples(st.integers(0, 12), st.sampled_from([0.0, 0.6, 1.2, 3.0])),
    )
    def store(self, home: int, name: str, dies: int | None, meanwhile: tuple[int, float] | None) -> None:
        """Store something. In the middle of it, time passes and the other home collects."""
        chosen = [self.random.randrange(12) for _ in range(self.random.randrange(1, 5))]
        data = b"".join(noise(each, 8) for each in chosen)
        self.objects.left = dies
        if meanwhile is not None:
            after, hours = meanwhile
            self.objects.meanwhile = after, lambda: self.collected(1 - home, hours)
        try:
            put(self.stores[home], name, data)
        except StoreError:
            pass
        else:
            self.kept[name] = data
        self.objects.left = self.objects.meanwhile = None

    def collected(self, home: int, hours: float) -> None:
        self.clock.now_s += hours * 3600
        with contextlib.suppress(StoreError, InUseError):
            Collector(store=self.stores[home], waste=0).collect()

    @rule(name=st.sampled_from("abcd"))
    def erase(self, name: str) -> None:
        erase(self.stores[0], name)
        self.kept.pop(name, None)

    @rule(
        home=st.integers(0, 1),
        dies=st.none() | st.integers(0, 6),
        meanwhile=st.none() | st.tuples(st.integers(0, 20), st.sampled_from("abcd")),
    )
    def collect(self, home: int, dies: int | None, meanwhile: tuple[int, str] | None) -> None:
        """Collect. In the middle of it, the other home stores something."""
        self.objects.left = dies
        if meanwhile is not None:
            after, name = meanwhile
            self.objects.meanwhile = after, lambda: self.store(1 - home, name, None, None)
        self.collected(home, 0.0)
        self.objects.left = self.objects.meanwhile = None

    @rule(hours=st.sampled_from([0.2, 0.7, 1.5]))
    def wait(self, hours: float) -> None:
        self.clock.now_s += hours * 3600

    @rule(home=st.integers(0, 1))
    def lose_the_catalog(self, home: int) -> None:
        self.stores[home] = a_store(self.objects, self.key, self.clock)

    @invariant()
    def all_is_readable(self) -> None:
        for name, data in getattr(self, "kept", {}).items():
            assert get(self.stores[0], name) == data

    def teardown(self) -> None:
        if not hasattr(self, "stores"):
            return
        try:
            self.check_the_end()
        finally:
            collector.MERGED_INDEXES, collector.MERGED_PACKS = self.bounds

    def check_the_end(self) -> None:
        """All that is needed is there once, and nothing else."""
        for _ in range(3):
            self.clock.now_s += GRACE_S + 3
            Collector(store=self.stores[1], waste=0).collect()
        needed = {
            frame
            for record in self.stores[1].records.list("snapshot")
            for frame in _frames(self.stores[1], record)
        }
        stored = [frame for (frame,) in self.stores[1].catalog.file.all("SELECT frame FROM frames")]
        assert set(stored) == needed
        assert len(stored) == len(needed)
        assert len(list(self.objects.list(f"{self.key.domain}/packs"))) == len(self.stores[1].catalog.packs())


def _frames(store: Store, record: Record) -> set[bytes]:
    assert record.manifest is not None
    manifest = store.manifest(record)
    return {
        *record.manifest.frame_ids(),
        *(frame for content in manifest.contents.values() for frame in content.frame_ids()),
    }


TestHistories = Histories.TestCase
TestHistories.settings = settings(
    max_examples=20, stateful_step_count=20, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
