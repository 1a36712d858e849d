"""Which automatic snapshots stay, by a clock that a test turns."""

from __future__ import annotations

from atoll.snapshots import surplus

HOUR_S, DAY_S = 3600.0, 86400.0
# Midnight, UTC.
START_S = 1000 * DAY_S


def kept_of(every_s: float, length_s: float, kept: int = 3) -> list[float]:
    """When those were made that are left of snapshots made over some time, with what is surplus removed after each."""
    made_at: dict[str, float] = {}
    now_s = START_S
    while now_s < START_S + length_s:
        now_s += every_s
        made_at[f"{now_s:.0f}"] = now_s
        for gone in surplus(made_at, kept, now_s):
            del made_at[gone]
    return sorted(now_s - each for each in made_at.values())


def test_the_newest_stay_and_no_more_within_an_hour() -> None:
    ages = kept_of(300, HOUR_S - 300)
    assert ages == [0, 300, 600]
    assert kept_of(300, HOUR_S - 300, kept=1) == [0]


def test_one_an_hour_stays_for_a_day() -> None:
    ages = kept_of(300, DAY_S - 300)
    assert len(ages) == 3 + 23
    assert max(later - sooner for sooner, later in zip(ages[3:], ages[4:], strict=False)) == HOUR_S


def test_one_a_day_stays_for_a_week_and_nothing_for_longer() -> None:
    ages = kept_of(300, 30 * DAY_S)
    assert len(ages) <= 3 + 25 + 7
    assert 6 * DAY_S <= max(ages) <= 7 * DAY_S
    days = {(START_S + 30 * DAY_S - age) // DAY_S for age in ages}
    assert len(days) >= 7


def test_the_newest_stay_however_old_they_are() -> None:
    made_at = {"a": 1.0, "b": 2.0, "c": 3.0}
    assert surplus(made_at, 2, START_S) == ["a"]
    assert surplus({}, 2, START_S) == []


def test_of_those_of_one_moment_the_ids_decide() -> None:
    assert surplus({"b": START_S, "a": START_S}, 1, START_S) == ["a"]
