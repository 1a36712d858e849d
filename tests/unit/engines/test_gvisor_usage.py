"""What a guest may use for a moment."""

import pytest

from atoll.engines.gvisor.usage import fits_twice

_MIB = 1 << 20


@pytest.mark.parametrize(
    ("used", "most", "available", "fits"),
    [(220, 512, 9999, True), (231, 512, 9999, False), (485, 1024, 9999, False), (9, 64, 9999, False)]
    + [(400, None, 900, True), (500, None, 900, False), (400, 2048, 700, False)],
)
def test_memory_is_copied_only_where_the_agent_needs_to_end_nobody(
    used: int, most: int | None, available: int, fits: bool
) -> None:
    most_bytes = None if most is None else most * _MIB
    assert fits_twice(used * _MIB, most_bytes, available * _MIB) is fits
