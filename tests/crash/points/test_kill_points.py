"""The supervisor dies at each kind of step of each operation, and nothing promised is lost.

``make soak`` has it die at every step: ``python -m tests.crash.points``.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.crash.points.trials import OPERATIONS, Trials

# The steps of a waking are what memory depends on most. An ordinary user has the same code, but for disks and cgroups.
_MOST = {"wake": 24} if os.geteuid() == 0 else {"wake": 6}
_MOST_OF_OTHERS = 3 if os.geteuid() == 0 else 1


@pytest.mark.timeout(1800)
def test_a_supervisor_that_dies_at_any_kind_of_step_loses_nothing(tmp_path: Path) -> None:
    trials = Trials(tmp_path)
    seen: set[str] = set()
    outcomes = []
    try:
        for operation, state in OPERATIONS:
            most = _MOST.get(operation, _MOST_OF_OTHERS)
            outcomes.append(trials.new_kinds_of(operation, state, seen, most))
    finally:
        trials.close()
    told = "\n".join(map(str, outcomes))
    assert not any(outcome.failures for outcome in outcomes), "\n".join(
        [told, *(failure for outcome in outcomes for failure in outcome.failures)]
    )
    assert all(outcome.points for outcome in outcomes), told
