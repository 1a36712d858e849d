from __future__ import annotations

from tests.integration.network.island import Island

from atoll.host import new_netns
from atoll.network import can_shape


async def test_a_trial_that_was_cut_short_does_not_spoil_the_next(island: Island) -> None:
    possible = can_shape(island.pins)
    new_netns(island.pins / "shaping.trial")
    assert can_shape(island.pins) == possible
    assert not list(island.pins.iterdir())
