from __future__ import annotations

from atoll.engines import DetachableFiles, LazyMemory, Prestarting, can
from atoll.testing import fake_engine


def test_a_capability_is_one_of_the_engine_or_of_its_machines() -> None:
    engine_type = fake_engine({Prestarting, LazyMemory})
    assert can(engine_type, Prestarting)
    assert can(engine_type, LazyMemory)
    assert not can(engine_type, DetachableFiles)
