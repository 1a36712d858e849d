"""Leases on the command line: how they are given and shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from atoll.cli.text import moment
from atoll.errors import InvalidSpecError
from atoll.types import Lifecycle, SandboxInfo
from atoll.types.internal import seconds_of

F = TypeVar("F", bound=Callable[..., Any])


class Length(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """A length such as ``90``, ``90s``, ``10m``, ``2h`` or ``1d``, in seconds; ``off`` means None.

    Args:
        off: Whether ``off`` is allowed.
        least_s: The shortest length that is allowed.
        off_s: What ``off`` means.
    """

    name = "length"

    def __init__(self, *, off: bool = True, least_s: float = 0.0, off_s: float | None = None) -> None:
        self._off = off
        self._least_s = least_s
        self._off_s = off_s

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | None:
        """Return the seconds."""
        if value == "off" and self._off:
            return self._off_s
        try:
            length_s = seconds_of(value)
        except InvalidSpecError as error:
            self.fail(f"{error.message}: {error.remedy}{' or off' if self._off else ''}", param, ctx)
        if length_s < self._least_s:
            more = f"{self._least_s:g}s or more"
            self.fail(f"{value!r} is too short: give {more}{', or off' if self._off else ''}", param, ctx)
        return length_s


_IDLE_OPTIONS = (
    click.option(
        "--wake-on-data",
        is_flag=True,
        help="While it is suspended, data on a connection that a program inside has opened wakes it.",
    ),
    click.option(
        "--idle-suspend",
        "idle_suspend_s",
        type=Length(off_s=0.0),
        metavar="LENGTH",
        help="Suspend it when it has been idle for this long, like 10m; default: the home's, or never.",
    ),
    click.option(
        "--idle-pause",
        "idle_pause_s",
        type=Length(off_s=0.0),
        metavar="LENGTH",
        help="Pause it when it has been idle for this long, like 30s; any use thaws it.",
    ),
)


def lifecycle_options(command: F) -> F:
    """Add the options for how long a sandbox may run and what happens then."""
    for add in (
        click.option(
            "--auto-recover/--no-auto-recover",
            default=None,
            help="Recover at once after a crash, as --on-crash says; default: only with --snapshot-every.",
        ),
        click.option(
            "--snapshots-kept",
            type=click.IntRange(1, 1000),
            default=3,
            show_default=True,
            metavar="N",
            help="How many of the newest automatic snapshots to keep, besides one an hour and one a day.",
        ),
        click.option(
            "--snapshot-every",
            "snapshot_every_s",
            type=Length(least_s=1),
            metavar="LENGTH",
            help="Make a snapshot automatically this often, like 5m, while something changes; default: never.",
        ),
        *_IDLE_OPTIONS,
        click.option("--no-auto-resume", is_flag=True, help="Once it sleeps, only `atoll resume` wakes it."),
        click.option(
            "--wake-lease",
            "wake_ttl_s",
            type=Length(),
            metavar="LENGTH",
            help="Length of the lease that it gets when a use wakes it; default: that of --lease.",
        ),
        click.option(
            "--on-lease-end",
            "on_expiry",
            type=click.Choice(["kill", "suspend", "stop"]),
            default="kill",
            show_default=True,
            help="What the end of its lease does; stop keeps only its disk.",
        ),
        click.option(
            "--lease",
            "ttl_s",
            type=Length(),
            metavar="LENGTH",
            help="How long it may run, like 90s, 10m or 2h; default: no limit.",
        ),
    ):
        command = add(command)
    return command


def lifecycle(options: Mapping[str, Any]) -> Lifecycle:
    """Return the lifecycle that the options ask for."""
    return Lifecycle(
        ttl_s=options["ttl_s"],
        on_expiry=options["on_expiry"],
        auto_resume=not options["no_auto_resume"],
        wake_ttl_s=options["wake_ttl_s"],
        snapshot_every_s=options["snapshot_every_s"],
        snapshots_kept=options["snapshots_kept"],
        auto_recover=options["auto_recover"],
        idle_pause_s=options["idle_pause_s"],
        idle_suspend_s=options["idle_suspend_s"],
        wake_on_data=options["wake_on_data"],
    )


def lease_left(info: SandboxInfo) -> str:
    """Return how long a sandbox may still run, or is kept; ``-`` if nothing ends it."""
    ends = [at for at in (info.ends_at, info.erased_at) if at is not None]
    if not ends:
        return "-"
    left_s = max(0.0, min(ends) - time.time())
    for unit, length_s in (("d", 86400), ("h", 3600), ("min", 60)):
        if left_s >= length_s:
            return f"{int(left_s // length_s)} {unit}"
    return f"{int(left_s)} s"


def lease_shown(info: SandboxInfo) -> str:
    """Describe when a sandbox's lease ends and what happens then."""
    how = info.lifecycle
    woken = "; data wakes it too" if how.wake_on_data else ""
    woken = woken if how.auto_resume else "; only `atoll resume` wakes it"
    if info.erased_at is not None:
        return f"the program that held it is gone; erased at {moment(info.erased_at)}, unless it is used"
    if info.ends_at is not None:
        return f"until {moment(info.ends_at)}, then {how.on_expiry}{woken}"
    if how.ttl_s is not None and info.state in ("suspended", "crashed"):
        return f"none while it is {info.state}; {how.ttl_s:g} s once it runs, then {how.on_expiry}{woken}"
    return f"none{woken}"


def idle_shown(info: SandboxInfo) -> str | None:
    """Describe when an idle sandbox sleeps, or why one sleeps; None if there is nothing to say."""
    if info.state in ("paused", "suspended"):
        return _CAUSES.get(info.sleep_cause or "")
    if info.idle is None:
        return None
    ends = [
        f"{what} at {moment(at)}"
        for what, at in (("paused", info.idle.pauses_at), ("suspended", info.idle.suspends_at))
        if at is not None
    ]
    return f"since {moment(info.idle.since)} ({info.idle.last}); if it stays so, {' and '.join(ends)}"


_CAUSES = {
    "request": "a client asked for it",
    "idle": "it was idle",
    "lease": "its lease ended",
    "left": "the program that held it is gone",
    "delegation": "its delegation ended",
}
