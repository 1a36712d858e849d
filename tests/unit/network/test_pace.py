from __future__ import annotations

from atoll.network.pace import Pace


class _Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def test_a_burst_is_free_and_what_follows_waits_its_turn() -> None:
    clock = _Clock()
    pace = Pace(per_s=10, burst=3, clock=clock)
    for _ in range(3):
        assert pace.wait_s() == 0
        pace.take()
    assert abs(pace.wait_s() - 0.1) < 1e-6
    clock.now_s += 0.11
    assert pace.wait_s() == 0


def test_a_rest_gives_no_more_than_one_burst_back() -> None:
    clock = _Clock()
    pace = Pace(per_s=10, burst=3, clock=clock)
    clock.now_s += 1000
    for _ in range(3):
        assert pace.wait_s() == 0
        pace.take()
    assert pace.wait_s() > 0
