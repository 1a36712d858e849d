"""Schedules: five fields as in cron, or ``every 10m``. All times are UTC."""

from __future__ import annotations

import functools
from datetime import UTC, datetime

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.lengths import seconds_of

_EVERY = "every "
_EVERY_LEAST_S = 1.0
_FIELDS = 5
_HINT = (
    "give minute (0-59), hour (0-23), day (1-31), month (1-12) and weekday (0-7), like '0 3 * * mon-fri', "
    "or 'every 10m'"
)


class Schedule(msgspec.Struct, frozen=True):
    """The times at which something runs: those of five fields as in cron, or every ``every_s`` seconds."""

    fields: str = ""
    every_s: float | None = None

    def after(self, at: float) -> float:
        """Return the first time after ``at``, in Unix seconds.

        Raises:
            InvalidSpecError: The fields are not as in cron, or no day has their time.
        """
        if self.every_s is not None:
            return at + self.every_s
        from cronsim import CronSim, CronSimError  # not before: it takes 2 ms of each program's start

        try:
            found = next(CronSim(self.fields, datetime.fromtimestamp(at, UTC)), None)
        except (CronSimError, ValueError) as error:  # a number with thousands of digits is a ValueError
            raise InvalidSpecError(f"{self.fields[:100]!r} is not a schedule: {error}", hint=_HINT) from None
        if found is None:
            raise InvalidSpecError(f"no day has the time of the schedule {self.fields[:100]!r}", hint=_HINT)
        return found.timestamp()


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
    if len(words.split()) != _FIELDS:  # cronsim takes a sixth field, for seconds
        raise InvalidSpecError(f"{text[:100]!r} is not a schedule", hint=_HINT)
    found = Schedule(fields=words)
    found.after(0)
    return found
