"""What a guest may use for a moment."""

import os
import subprocess
import sys

import pytest

from atoll.engines.gvisor.usage import fits_twice, usage_of

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


def test_a_process_with_a_name_of_whatever_bytes_keeps_no_others_from_being_counted() -> None:
    rename = (
        "from pathlib import Path; Path('/proc/self/comm').write_bytes(b'\\xff) \\xfe'); print(); input()"
    )
    odd = subprocess.Popen([sys.executable, "-c", rename], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with odd:
        assert odd.stdout is not None
        odd.stdout.readline()
        assert usage_of([os.getpid()]).memory_bytes > 0
        assert usage_of([odd.pid]).memory_bytes > 0
        odd.kill()
