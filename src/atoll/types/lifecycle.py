"""How long a sandbox may run, and what happens then."""

from __future__ import annotations

from typing import Literal, get_args

import msgspec

from atoll.errors import InvalidSpecError
from atoll.types.given import check_choice, check_number

OnExpiry = Literal["kill", "suspend", "stop"]
"""What a lease's end does: erase the sandbox, put it to sleep, or end its processes and keep its disk."""

SleepCause = Literal["request", "idle", "lease", "left", "delegation"]
"""Why it is paused or suspended: by request, idle, its lease or its delegation ended, or its clients are gone."""


# A number that no calendar can show is not a moment.
_MOST_S = 1e9


class Lifecycle(
    msgspec.Struct,
    frozen=True,
    repr_omit_defaults=True,
    kw_only=True,
    omit_defaults=True,
    forbid_unknown_fields=True,
):
    """How long a sandbox runs: until its lease ends, or until it is idle.

    Both idle times count from its last activity, see the guide's page on how long a sandbox runs.

    Args:
        ttl_s: Seconds that it may run from its start, and from each resume or wake. None is no lease.
        on_expiry: What happens when the lease ends. ``"kill"`` erases it, ``"suspend"`` keeps its memory and
            disk, ``"stop"`` ends its processes and keeps its disk.
        auto_resume: Any use wakes it. If False, only ``resume`` wakes it from sleep.
        wake_ttl_s: The lease after a use has woken it, in seconds. None is ``ttl_s``.
        idle_pause_s: Seconds without activity until it is paused. Any use thaws it, even without
            ``auto_resume``. 0 is never. None is the home's ``ATOLL_IDLE_PAUSE_S``, which is never unless set.
        idle_suspend_s: Seconds without activity until it is suspended. 0 is never. None is the home's
            ``ATOLL_IDLE_SUSPEND_S``, 15 minutes unless set, and never while a client holds it in ``with``.
        wake_on_data: While it is suspended, data that comes on a connection which a program inside has opened
            wakes it, like any use. Needs ``auto_resume``.
        snapshot_every_s: While it runs, atoll makes a snapshot when this many seconds have passed since the
            last one and something has changed. None makes none; 300 suits a sandbox that stays.
        snapshots_kept: How many of the newest automatic snapshots to keep. Besides these, one an hour stays
            for a day, and one a day for a week.
        auto_recover: After a crash while it ran, atoll does at once what ``on_crash`` says. If False, its
            next use does it. None is True with ``snapshot_every_s``, else False.
    """

    ttl_s: float | None = None
    on_expiry: OnExpiry = "kill"
    auto_resume: bool = True
    wake_ttl_s: float | None = None
    idle_pause_s: float | None = None
    idle_suspend_s: float | None = None
    wake_on_data: bool = False
    snapshot_every_s: float | None = None
    snapshots_kept: int = 3
    auto_recover: bool | None = None

    @property
    def recovers(self) -> bool:
        """Return whether it recovers from a crash before its next use."""
        return self.snapshot_every_s is not None if self.auto_recover is None else self.auto_recover

    def check(self) -> Lifecycle:
        """Return this lifecycle if it is valid. Clients check too, since JSON has neither NaN nor infinity.

        Raises:
            InvalidSpecError: A value is invalid; the message says which.
        """
        for name in ("ttl_s", "wake_ttl_s"):
            value = getattr(self, name)
            if value is not None:
                hint = "give 0 to 1,000,000,000 seconds, or None for no lease"
                check_number(name, value, least=0, most=_MOST_S, hint=hint)
        for name in ("idle_pause_s", "idle_suspend_s"):
            value = getattr(self, name)
            if value is not None:
                check_number(name, value, least=0, most=_MOST_S, hint="give seconds, or 0 for never")
        if self.wake_on_data and not self.auto_resume:
            raise InvalidSpecError(
                "wake_on_data wakes nothing without auto_resume",
                hint="leave out one of the two",
            )
        if self.snapshot_every_s is not None:
            hint = "give 1 to 1,000,000,000 seconds, or None for no snapshots"
            check_number("snapshot_every_s", self.snapshot_every_s, least=1, most=_MOST_S, hint=hint)
        hint = "give 1 to 1,000"
        check_number("snapshots_kept", self.snapshots_kept, least=1, most=1000, whole=True, hint=hint)
        check_choice("on_expiry", self.on_expiry, get_args(OnExpiry))
        return self


class Idle(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """The idle state of a sandbox that sleeps when it is idle. Times are Unix seconds.

    Args:
        since: When its last activity was noticed; a moment ago while it works.
        last: The kind of that activity: ``"start"``, ``"use"`` by a client, an ``"operation"`` on it, the
            ``"processor"``, ``"traffic"`` on its network, a ``"request"`` over it that has no answer yet, a
            ``"command"`` whose caller waits for its end, or ``"keep_awake"``.
        pauses_at: When it will be paused if nothing happens until then. None is never, or it is paused already.
        suspends_at: When it will be suspended if nothing happens until then. None is never.
        awake_until: ``keep_awake`` makes it count as active until then; None if nobody asked for that.
    """

    since: float
    last: str
    pauses_at: float | None = None
    suspends_at: float | None = None
    awake_until: float | None = None
