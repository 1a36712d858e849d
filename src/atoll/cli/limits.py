"""Limits as the command line takes and shows them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import click

from atoll.cli.lifecycle import Length
from atoll.types import Limits, SandboxStats

F = TypeVar("F", bound=Callable[..., Any])

_OPTIONS: tuple[tuple[str, str, type | click.ParamType, str, str], ...] = (  # type: ignore[type-arg]
    ("--cpus", "vcpus", float, "N", "Limit of processor time, in processors."),
    ("--memory", "memory_mib", int, "MIB", "Limit of memory."),
    ("--disk", "disk_mib", int, "MIB", "Limit of what it writes to its disk."),
    ("--files", "files", int, "N", "Limit of files and directories on its disk."),
    ("--disk-rate", "disk_mib_s", float, "MIB/S", "Limit of reading and writing its disk, each way."),
    ("--network-rate", "network_mib_s", float, "MIB/S", "Limit of sending and receiving, each way."),
    ("--processes", "processes", int, "N", "Limit of processes and threads inside."),
    ("--open-files", "open_files", int, "N", "Limit of open files of all its processes."),
    (
        "--lifetime",
        "lifetime_s",
        Length(off=False),
        "LENGTH",
        "Kill it so long after its creation, like 12h or 7d.",
    ),
)


def limit_options(command: F) -> F:
    """Add an option for each limit."""
    for flag, name, kind, metavar, text in reversed(_OPTIONS):
        command = click.option(flag, name, type=kind, metavar=metavar, help=text)(command)
    return command


def limits(options: Mapping[str, Any]) -> Limits:
    """The limits that were given."""
    return Limits(**{name: options[name] for name in Limits.__struct_fields__})


def described(limits: Limits) -> str:
    """The limits in one line, as one would give them."""
    given = limits.given()
    return " ".join(f"{flag} {given[name]:g}" for flag, name, *_ in _OPTIONS if name in given)


def held_shown(stats: SandboxStats) -> str:
    """The limits in force in one line, each with how it holds."""
    given = stats.limits.given()
    return ", ".join(
        f"{flag.removeprefix('--')} {given[name]:g} {stats.held.get(name, '')}".rstrip()
        for flag, name, *_ in _OPTIONS
        if name in given
    )
