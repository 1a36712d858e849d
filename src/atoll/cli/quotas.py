"""Quotas on the command line: how they are given and shown."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click
import msgspec

from atoll.cli.leases import Length
from atoll.cli.sizes import mib_of
from atoll.cli.text import size
from atoll.types import Quotas, TeamUse

F = TypeVar("F", bound=Callable[..., Any])


class Most(click.ParamType):  # type: ignore[type-arg] # generic only in its newest stubs
    """A parameter that takes a number of 0 or more; ``off`` means infinity.

    Args:
        kind: Parses the number.
    """

    name = "most"

    def __init__(self, kind: Callable[[str], float]) -> None:
        self._kind = kind

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number."""
        if value == "off":
            return math.inf
        try:
            number = self._kind(value)
        except ValueError:
            self.fail(f"{value!r} is not a number: give one, or off", param, ctx)
        if not 0 <= number < math.inf:
            self.fail(f"{value!r} is out of range: give 0 or more, or off", param, ctx)
        return number


class _MostLength(Length):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the seconds; ``off`` means infinity."""
        length_s = super().convert(value, param, ctx)
        return math.inf if length_s is None else length_s


_COUNT, _AMOUNT, _MIB = Most(int), Most(float), Most(mib_of)
_OPTIONS: tuple[tuple[str, str, click.ParamType, str, str], ...] = (  # type: ignore[type-arg]
    ("--running", "running", _COUNT, "N", "Running and paused sandboxes."),
    ("--suspended", "suspended", _COUNT, "N", "Suspended sandboxes."),
    ("--cpus", "vcpus", _AMOUNT, "N", "Processors of all running sandboxes together."),
    ("--memory", "memory_mib", _MIB, "SIZE", "Memory of all running sandboxes together, in MiB or like 8g."),
    ("--disk", "disk_mib", _MIB, "SIZE", "Disk of all sandboxes, snapshots, volumes and images together."),
    ("--builds", "builds", _COUNT, "N", "Template builds at a time."),
    ("--lease", "ttl_s", _MostLength(), "LENGTH", "The longest lease, like 90s, 10m or 2h."),
    (
        "--idle",
        "idle_s",
        _MostLength(least_s=1),
        "LENGTH",
        "The longest that a sandbox may be idle without being suspended.",
    ),
    ("--requests", "requests_s", _AMOUNT, "N", "Requests per second to a server."),
)


def quota_options(command: F) -> F:
    """Add an option for each quota."""
    for flag, name, kind, metavar, text in reversed(_OPTIONS):
        command = click.option(flag, name, type=kind, metavar=metavar, help=text)(command)
    return command


def changed(quotas: Quotas, options: Mapping[str, Any]) -> Quotas:
    """Return the quotas with the given ones changed."""
    given = {name: value for name in Quotas.__struct_fields__ if (value := options[name]) is not None}
    return msgspec.structs.replace(
        quotas, **{name: None if value == math.inf else value for name, value in given.items()}
    )


def described(quotas: Quotas) -> str:
    """Describe the quotas in one line, in the form in which they are given."""
    given = msgspec.structs.asdict(quotas)
    return " ".join(f"{flag} {given[name]:.10g}" for flag, name, *_ in _OPTIONS if given[name] is not None)


def used(use: TeamUse, quotas: Quotas) -> list[tuple[str, str]]:
    """Return the use of each quota, line by line: the quota's name and both numbers."""
    now = {**msgspec.structs.asdict(use), "disk_mib": math.ceil(use.disk_bytes / (1 << 20))}
    lines = []
    for _, name, *_rest in _OPTIONS:
        most = getattr(quotas, name)
        limit = "no quota" if most is None else f"at most {most:.10g}"
        lines.append((name, f"{now[name]:.10g}, {limit}" if name in now else limit))
    return lines


def disk_shown(use: TeamUse) -> str:
    """Describe the disk space that a team occupies."""
    return size(use.disk_bytes)
