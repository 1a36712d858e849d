"""What has grown is told with its amount, and what changes by itself is not."""

from __future__ import annotations

from tests.churn.flatness import grown

MIB = 1 << 20
FLAT = {"pid": 7.0, "memory": 50.0 * MIB, "mounts": 30.0, "rows of snapshots": 1.0}


def test_what_has_grown_is_told_with_what_it_was_and_is_and_may_be() -> None:
    more = {**FLAT, "memory": 80.0 * MIB, "mounts": 31.0, "files in layers": 1000.0}
    assert grown([FLAT, FLAT], [more, more], elders=2) == [
        "files in layers: 0 after the warm-up, 1000 at the end: grown by 1000, allowed are 200",
        "memory: 50.0 MiB after the warm-up, 80.0 MiB at the end: grown by 30.0 MiB, allowed are 12.0 MiB",
        "mounts: 30 after the warm-up, 31 at the end: grown by 1, allowed are 0",
    ]


def test_what_is_less_or_more_for_a_moment_or_of_elders_has_not_grown() -> None:
    less = {**FLAT, "memory": 40.0 * MIB, "mounts": 29.0}
    peak = {**FLAT, "memory": 99.0 * MIB, "mounts": 90.0}
    elders = {**FLAT, "rows of snapshots": 7.0}
    assert grown([FLAT, less], [peak, less], elders=0) == []
    assert grown([FLAT, FLAT], [elders, elders], elders=2) == []
    assert grown([FLAT, FLAT], [elders, elders], elders=1)
