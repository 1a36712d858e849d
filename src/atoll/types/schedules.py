"""Schedules: five fields as of cron, or ``every 10m``. All times are UTC."""

from __future__ import annotations

import functools
import re
from datetime import UTC, datetime, timedelta

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.lengths import seconds_of

_EVERY = "every "
_EVERY_LEAST_S = 1.0
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_DAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day", 1, 31, {}),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _DAYS),
)
_PART = re.compile(r"(\*|[a-z0-9]+)(?:-([a-z0-9]+))?(?:/([0-9]{1,4}))?")
# Every valid day comes within this many: the 29th of February is up to eight years away.
_DAYS_MOST = 366 * 8 + 1
_HINT = "give five fields, like '0 3 * * mon-fri', or 'every 10m'"


class Schedule(msgspec.Struct, frozen=True):
    """When something is to run: at these minutes of these hours of these days, or each ``every_s`` seconds.

    If days and weekdays are both given, one of them is enough, as cron has it.
    """

    minutes: tuple[int, ...] = ()
    hours: tuple[int, ...] = ()
    days: frozenset[int] = frozenset()
    months: frozenset[int] = frozenset()
    weekdays: frozenset[int] = frozenset()
    either_day: bool = False
    every_s: float | None = None

    def after(self, at: float) -> float:
        """Return the first time after ``at``, in Unix seconds."""
        if self.every_s is not None:
            return at + self.every_s
        first = datetime.fromtimestamp(at, UTC).replace(second=0, microsecond=0) + timedelta(minutes=1)
        for offset in range(_DAYS_MOST):
            day = (first if offset == 0 else first.replace(hour=0, minute=0)) + timedelta(days=offset)
            if not self._has(day):
                continue
            for hour in self.hours:
                for minute in self.minutes:
                    if (hour, minute) >= (day.hour, day.minute):
                        return day.replace(hour=hour, minute=minute).timestamp()
        raise InvalidSpecError("the schedule has no such day", hint=_HINT)

    def _has(self, day: datetime) -> bool:
        in_days, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return day.month in self.months and (in_days or in_week if self.either_day else in_days and in_week)


@functools.lru_cache(1024)
def schedule_of(text: str) -> Schedule:
    """Read a schedule.

    Raises:
        InvalidSpecError: It is not one, or no day has its time.
    """
    words = text.lower().strip()
    if words.startswith(_EVERY):
        every_s = seconds_of(words.removeprefix(_EVERY).strip())
        if every_s < _EVERY_LEAST_S:
            raise InvalidSpecError(f"the schedule {text[:60]!r} is too fast", hint="give at least every 1s")
        return Schedule(every_s=every_s)
    parts = words.split()
    if len(parts) != len(_FIELDS):
        raise InvalidSpecError(f"{text[:100]!r} is not a schedule", hint=_HINT)
    minutes, hours, days, months, weekdays = (
        _numbers(part, *field) for part, field in zip(parts, _FIELDS, strict=True)
    )
    found = Schedule(
        minutes=tuple(sorted(minutes)),
        hours=tuple(sorted(hours)),
        days=frozenset(days),
        months=frozenset(months),
        weekdays=frozenset(day % 7 for day in weekdays),
        either_day=not parts[2].startswith("*") and not parts[4].startswith("*"),
    )
    found.after(0)
    return found


def _numbers(text: str, field: str, least: int, most: int, names: dict[str, int]) -> set[int]:
    numbers: set[int] = set()
    for part in text.split(","):
        matched = _PART.fullmatch(part)
        if matched is None or (matched[1] == "*" and matched[2]):
            raise InvalidSpecError(f"{part[:60]!r} is not a {field} of a schedule", hint=_HINT)
        first = least if matched[1] == "*" else _number(matched[1], names)
        open_end = matched[1] == "*" or matched[3]
        last = _number(matched[2], names) if matched[2] else (most if open_end else first)
        step = int(matched[3] or 1)
        if not least <= first <= last <= most or step < 1:
            raise InvalidSpecError(
                f"{part[:60]!r} is not a {field} of a schedule", hint=f"{field}s are {least} to {most}"
            )
        numbers.update(range(first, last + 1, step))
    return numbers


def _number(text: str, names: dict[str, int]) -> int:
    return names.get(text, int(text) if text.isdecimal() and len(text) <= 4 else -1)
