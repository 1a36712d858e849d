"""The short form of ``python -m tests.compat``: what the image has, and what a sandbox refuses, without a registry."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat import base, refused
from tests.compat.playing import play
from tests.compat.program import Family


# Some forty programs run three times each: half a minute where nothing else runs.
@pytest.mark.timeout(900)
def test_programs_work_before_a_sleep_after_it_and_in_a_fork_and_what_the_guide_excludes_does_not(
    home: Path,
) -> None:
    short = Family("short", (*base.FAMILY.programs, *refused.SHORT))
    assert not any(program.needs_registries for program in short.programs)
    assert {row.name: row.outcomes for row in play(short, timed=False) if not row.right} == {}
