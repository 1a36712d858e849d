"""Tells how each limit is enforced on this host. No other module decides this."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from atoll.engines import DiskBudget, Engine, can
from atoll.errors import UnsupportedError
from atoll.supervisor.state.rows import Versions
from atoll.types import Limits

Hold = Literal["hard", "watched", "unavailable"]


class Means(msgspec.Struct, frozen=True, kw_only=True):
    """The means to enforce a sandbox's limits.

    Args:
        cgroups: Control groups can be made.
        layers: Disks are the host's layers; the engine does not keep them.
        shaping: The kernel can shape the traffic of an interface (``sch_tbf``).
        disk_budget: The engine refuses a guest's writes beyond its limit.
    """

    cgroups: bool
    shaping: bool
    layers: bool = True
    disk_budget: bool = True


class HostMeans(msgspec.Struct, frozen=True, kw_only=True):
    """The host's means to enforce limits.

    Args:
        cgroups: See ``Means``.
        shaping: See ``Means``.
        engine_type: Returns the class of the engine with a name.
    """

    cgroups: bool
    shaping: bool
    engine_type: Callable[[str], type[Engine]]

    def of(self, versions: Versions, *, engine_disk: bool) -> Means:
        """The means to enforce the limits of a sandbox with these versions.

        Raises:
            UnsupportedError: This build has no such engine.
        """
        return Means(
            cgroups=self.cgroups,
            shaping=self.shaping,
            layers=not engine_disk,
            disk_budget=can(self.engine_type(versions.engine_name), DiskBudget),
        )


class Held(msgspec.Struct, frozen=True):
    """The way in which a limit is enforced, and its meaning."""

    hold: Hold
    note: str


def holding(means: Means) -> dict[str, Held]:
    """How each limit is enforced, by its name."""
    sentry = "refused by the guest's kernel"
    disk = Held(
        "hard", "refused by the guest's kernel; the first copy of a file from the image counts 10 s later"
    )
    if not means.layers:
        disk = Held("unavailable", "the engine keeps the disk in this home")
    elif not means.disk_budget:
        disk = Held("unavailable", "the engine does not limit disks")
    if means.cgroups:
        memory = Held("hard", "by a cgroup; before that, the agent kills the largest program")
        vcpus = Held("hard", "by a cgroup")
    else:
        memory = Held("watched", "killed within 50 ms after it passes the limit, and may use more until then")
        vcpus = Held("hard", "in whole processors, and only changed while it does not run")
    rate = Held("hard", "by the guest's kernel; access to mapped files does not count")
    network = Held("hard", "by the kernel, each way")
    if not means.shaping:
        network = Held("unavailable", "this kernel has no sch_tbf")
    return {
        "vcpus": vcpus,
        "memory_mib": memory,
        "disk_mib": disk,
        "files": disk,
        "disk_mib_s": rate if means.layers else disk,
        "network_mib_s": network,
        "processes": Held("hard", sentry),
        "open_files": Held("hard", sentry),
        "lifetime_s": Held(
            "watched", "killed within 2 s while a supervisor runs, else when the next one starts"
        ),
    }


def how(name: str, value: float, means: Means) -> Held:
    """How one limit with this value is enforced."""
    if name == "vcpus" and not means.cgroups and value != int(value):
        return Held("unavailable", "without a cgroup only whole processors")
    return holding(means)[name]


def refuse_unheld(limits: Limits, means: Means) -> None:
    """Refuse limits that this host cannot enforce.

    Raises:
        UnsupportedError: Names the limit and the reason.
    """
    for name, value in limits.given().items():
        held = how(name, value, means)
        if held.hold == "unavailable":
            raise UnsupportedError(
                f"this host cannot enforce the limit {name}={value:g}: {held.note}",
                hint="leave it out, or accept that with best_effort; `atoll doctor` says what this host enforces",
            )


def held_of(limits: Limits, means: Means) -> dict[str, Hold]:
    """How each of the given limits is enforced."""
    return {name: how(name, value, means).hold for name, value in limits.given().items()}
