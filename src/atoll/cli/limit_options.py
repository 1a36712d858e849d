"""Limits on the command line: how they are given and shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from atoll.cli.leases import Length
from atoll.cli.sizes import Mib
from atoll.types import NO_LIMIT, Limits, SandboxStats

F = TypeVar("F", bound=Callable[..., Any])


_OPTIONS: tuple[tuple[str, str, type | click.ParamType, str, str], ...] = (  # type: ignore[type-arg]
    ("--cpus", "vcpus", float, "N", "Limit of processor time, in processors."),
    ("--memory", "memory_mib", Mib(), "SIZE", "Limit of memory, in MiB or like 512m or 2g."),
    (
        "--disk",
        "disk_mib",
        Mib(none=True),
        "SIZE",
        "Limit of what it writes to its disk, in MiB or like 5g, or none. Default: 20480, and a tenth of the "
        "host's disk stays free.",
    ),
    ("--files", "files", int, "N", "Limit of files and directories on its disk."),
    ("--disk-rate", "disk_mib_s", float, "MIB/S", "Rate limit of disk reads, and separately of disk writes."),
    (
        "--network-rate",
        "network_mib_s",
        float,
        "MIB/S",
        "Rate limit of sending, and separately of receiving.",
    ),
    ("--processes", "processes", int, "N", "Limit of processes and threads inside."),
    ("--open-files", "open_files", int, "N", "Limit of open files, of all its processes together."),
    (
        "--lifetime",
        "lifetime_s",
        Length(off=False),
        "LENGTH",
        "Kill it this long after its creation, like 12h or 7d.",
    ),
)


def limit_options(command: F) -> F:
    """Add an option for each limit."""
    for flag, name, kind, metavar, text in reversed(_OPTIONS):
        command = click.option(flag, name, type=kind, metavar=metavar, help=text)(command)
    return command


def limits(options: Mapping[str, Any]) -> Limits:
    """Return the limits that were given."""
    return Limits(**{name: options[name] for name in Limits.__struct_fields__})


def described(limits: Limits) -> str:
    """Describe the limits in one line, in the form in which they are given."""
    given = limits.given()
    return " ".join(f"{flag} {_shown(given[name])}" for flag, name, *_ in _OPTIONS if name in given)


def _shown(value: float) -> str:
    return "none" if value == NO_LIMIT else f"{value:.10g}"


def held_shown(stats: SandboxStats) -> str:
    """Describe the limits in force in one line, each with how it is enforced."""
    given = stats.limits.given()
    return ", ".join(
        f"{flag.removeprefix('--')} {_shown(given[name])} {stats.held.get(name, '')}".rstrip()
        for flag, name, *_ in _OPTIONS
        if name in given
    )
