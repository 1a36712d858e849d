"""What a lifecycle may say, and what follows from it."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Lifecycle


@pytest.mark.parametrize(
    "wrong",
    [
        {"snapshot_every_s": 0.5},
        {"snapshot_every_s": "5m"},
        {"snapshots_kept": 0},
        {"idle_pause_s": -1},
        {"idle_suspend_s": "10m"},
        {"wake_on_data": True, "auto_resume": False},
    ],
)
def test_a_lifecycle_refuses_what_makes_no_sense(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError):
        Lifecycle(**wrong).check()


def test_what_makes_snapshots_by_itself_recovers_by_itself_unless_told_otherwise() -> None:
    assert not Lifecycle().recovers
    assert Lifecycle(auto_recover=True).recovers
    assert Lifecycle(snapshot_every_s=300).recovers
    assert not Lifecycle(snapshot_every_s=300, auto_recover=False).recovers
