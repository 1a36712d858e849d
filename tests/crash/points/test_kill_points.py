"""The supervisor dies at some kinds of steps of each operation, and nothing promised is lost.

``make soak`` has it die at every step: ``python -m tests.crash.points``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash.points.trials import OPERATIONS, Trials

# The steps of a waking are what memory depends on most.
_MOST, _MOST_OF_OTHERS = {"wake": 12}, 2


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
