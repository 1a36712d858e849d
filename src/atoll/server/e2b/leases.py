"""Translates E2B's timeouts into leases."""

from __future__ import annotations

import msgspec

from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.wire import NewSandbox, OnTimeout
from atoll.types import Lifecycle, OnExpiry

DEFAULT_V1_S = 15
DEFAULT_V2_S = 300
_WOKEN_LEAST_S = 300
_HOUR_S = 3600


def bounded(timeout_s: int, most_s: float | None) -> int:
    """Return a timeout, unless it is longer than the team may have.

    Raises:
        Refusal: The timeout is longer than that.
    """
    if most_s is not None and timeout_s > most_s:
        raise Refusal(400, f"Timeout cannot be greater than {most_s / _HOUR_S:g} hours")
    return timeout_s


def lease_of(asked: NewSandbox, timeout_s: int, most_s: float | None = None) -> Lifecycle:
    """Return a new sandbox's lease and its end. ``most_s`` is the longest lease of its team.

    The sandbox does not sleep earlier for idleness, unless the team has a quota for that.

    Raises:
        Refusal: The request contradicts itself.
    """
    auto_resume = asked.auto_resume is not None and asked.auto_resume.enabled
    if asked.auto_pause_memory is False:
        if not asked.auto_pause:
            raise Refusal(400, "autoPauseMemory=false only applies when autoPause is true.")
        if auto_resume:
            raise Refusal(400, "autoPauseMemory=false cannot be combined with autoResume.")
    on_expiry: OnExpiry = "kill"
    if asked.auto_pause:
        on_expiry = "stop" if asked.auto_pause_memory is False else "suspend"
    like = Lifecycle(on_expiry=on_expiry, auto_resume=auto_resume, idle_suspend_s=0)
    return lease(timeout_s, like, most_s)


def lease(timeout_s: int, like: Lifecycle, most_s: float | None = None) -> Lifecycle:
    """Return a lease of that length that ends like another one.

    A use that wakes the sandbox gives 5 minutes or more, if the team may have that much.
    """
    woken_s = max(timeout_s, _WOKEN_LEAST_S)
    wake_ttl_s = woken_s if most_s is None else min(woken_s, most_s)
    return msgspec.structs.replace(like, ttl_s=timeout_s, wake_ttl_s=wake_ttl_s)


def told(lifecycle: Lifecycle) -> OnTimeout:
    """Return the end of a lease as E2B describes it."""
    return OnTimeout(
        auto_resume=lifecycle.auto_resume, on_timeout="kill" if lifecycle.on_expiry == "kill" else "pause"
    )
