from __future__ import annotations

from tests.integration.network.testbed import NetworkTestbed

from atoll.host import new_netns
from atoll.network import can_shape


async def test_a_trial_that_was_cut_short_does_not_spoil_the_next(testbed: NetworkTestbed) -> None:
    possible = can_shape(testbed.pins)
    new_netns(testbed.pins / "shaping.trial")
    assert can_shape(testbed.pins) == possible
    assert not list(testbed.pins.iterdir())
