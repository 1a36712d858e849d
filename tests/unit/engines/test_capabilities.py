from __future__ import annotations

import pytest

from atoll.engines import DetachableFiles, LatePages, Prestarting, can
from atoll.errors import UnsupportedError
from atoll.testing import fake_engine


def test_a_capability_is_one_of_the_engine_or_of_its_machines() -> None:
    engine_type = fake_engine({Prestarting, LatePages})
    assert can(engine_type, Prestarting)
    assert can(engine_type, LatePages)
    assert not can(engine_type, DetachableFiles)


def test_an_engine_that_cannot_freeze_from_outside_says_so() -> None:
    with pytest.raises(UnsupportedError, match="cannot be frozen from outside"):
        fake_engine(set()).halt(b"record", None)
