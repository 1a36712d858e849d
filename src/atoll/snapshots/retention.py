"""Selects the automatic snapshots to keep. Pure."""

from __future__ import annotations

from collections.abc import Mapping

_HOUR_S = 3600.0
_DAY_S = 24 * _HOUR_S
_WEEK_S = 7 * _DAY_S


def surplus(made_at: Mapping[str, float], kept: int, now_s: float) -> list[str]:
    """Return the snapshots to drop, oldest first.

    The newest ``kept`` stay. Of the rest, the newest of each hour stays for a day, and that of each day for a week.

    Args:
        made_at: When each snapshot of one sandbox was made, in Unix seconds, by its id.
    """
    by_age = sorted(made_at, key=lambda each: (made_at[each], each))
    stay = set(by_age[-kept:])
    for length_s, most_s in ((_HOUR_S, _DAY_S), (_DAY_S, _WEEK_S)):
        newest = {made_at[each] // length_s: each for each in by_age}
        stay |= {each for each in newest.values() if now_s - made_at[each] <= most_s}
    return [each for each in by_age if each not in stay]
