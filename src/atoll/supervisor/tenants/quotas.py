"""Checks the current and coming use of teams against their quotas."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

import msgspec

from atoll.errors import QuotaError
from atoll.supervisor.machines.default_limits import KEEP_FREE_PERCENT
from atoll.types import NO_LIMIT, Lifecycle, Limits, Quotas, TeamUse

if TYPE_CHECKING:
    from atoll.supervisor.state.inventory import Inventory
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.tenants.teams import Teams

_T = TypeVar("_T")
_AWAKE = ("creating", "running", "paused")
_HINTS = {
    "running": "kill or suspend one",
    "suspended": "kill one",
    "vcpus": "kill or suspend a sandbox, or give this one fewer: `--cpus`",
    "memory_mib": "kill or suspend a sandbox, or give this one less: `--memory`",
    "disk_mib": "kill sandboxes or delete snapshots",
}
_WORDS = {
    "running": "running sandboxes",
    "suspended": "suspended sandboxes",
    "vcpus": "vCPUs",
    "memory_mib": "MiB of memory",
    "disk_mib": "MiB of disk",
}


@dataclass(eq=False, repr=False)
class _Booking:
    """Use that is about to begin: running sandboxes, by id with their limits, and sleeping ones."""

    team: str
    awake: dict[str, Limits]
    asleep: frozenset[str] = frozenset()


def check_growth(team: str, quotas: Quotas, before: TeamUse, after: TeamUse) -> None:
    """Refuse growth beyond the quotas. A change that does not increase the use always passes.

    Raises:
        QuotaError: Names the quota, and how much of it is used.
    """
    for name, words in _WORDS.items():
        most = getattr(quotas, name)
        if most is None or name == "disk_mib":
            continue
        had, would = getattr(before, name), getattr(after, name)
        if would > most and would > had:
            raise QuotaError(
                f"team {team!r} would have {would:.10g} {words}, but may have only {most:.10g}",
                hint=_HINTS[name],
            )


def check_lease(team: str, quotas: Quotas, lifecycle: Lifecycle) -> None:
    """Refuse a lease that is longer than the team may have.

    Raises:
        QuotaError: The lease is too long, or has no end.
    """
    most_s = quotas.ttl_s
    if most_s is None:
        return
    first_s, woken_s = lifecycle.ttl_s, lifecycle.wake_ttl_s
    if first_s is None:
        raise QuotaError(
            f"sandboxes of team {team!r} need a lease of at most {most_s:.10g} seconds",
            hint=f"give one of {most_s:.10g} seconds or less: `--lease {_length(most_s)}`",
        )
    if first_s > most_s or (woken_s is not None and woken_s > most_s):
        raise QuotaError(
            f"a lease of team {team!r} is at most {most_s:.10g} seconds",
            hint=f"give {most_s:.10g} seconds or less",
        )


def _length(length_s: float) -> str:
    """A length in the form that the command line accepts."""
    for unit, unit_s in (("h", 3600), ("m", 60)):
        if length_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:.10g}{unit}"
    return f"{length_s:.10g}s"


def use_of(awake: Mapping[str, Limits], asleep: Collection[str], vcpus: float) -> TeamUse:
    """The total use. A sandbox without a processor limit of its own counts as ``vcpus``."""
    return TeamUse(
        running=len(awake),
        suspended=len(asleep),
        vcpus=round(sum(vcpus if each.vcpus is None else each.vcpus for each in awake.values()), 6),
        memory_mib=sum(each.memory_mib or 0 for each in awake.values()),
    )


@dataclass(eq=False, repr=False)
class TeamQuotas:
    """Decides whether a team may use more, and books each promise until it is kept.

    Checking and booking happen in one step, so that concurrent requests cannot exceed a quota together. A
    sandbox counts once, by its id, however often it is booked. Sandboxes without a team do not count.

    Args:
        default_limits: The limits of sandboxes that ask for none.
        disk_bytes: Returns the bytes that a team uses on the disk.
        builds: Returns how many builds of a team are in progress. Each build checks this quota at its start.
        give_up: Erases something that a team can get again, such as an unused image. Returns False if there
            is nothing.
    """

    inventory: Inventory
    teams: Teams
    default_limits: Limits
    disk_bytes: Callable[[str], Awaitable[int]]
    builds: Callable[[str], int]
    give_up: Callable[[str], Awaitable[bool]]
    _vcpus: float = field(default_factory=lambda: float(os.cpu_count() or 1), init=False)
    _bookings: list[_Booking] = field(default_factory=list, init=False)

    async def use(self, team: str) -> TeamUse:
        """A team's current use, including its bookings.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        self.teams.get(team)
        disk_bytes = await self.disk_bytes(team)
        counted = self._counted(team, self._bookings)
        return msgspec.structs.replace(counted, disk_bytes=disk_bytes, builds=self.builds(team))

    @contextlib.asynccontextmanager
    async def making(
        self, team: str | None, awake: Mapping[str, Limits], lifecycle: Lifecycle
    ) -> AsyncIterator[None]:
        """Book new sandboxes, by their ids, while they are being made.

        Raises:
            TeamNotFoundError: There is no such team.
            QuotaError: The quota of the team does not allow the sandboxes or their leases.
        """
        if team is None:
            yield
            return
        check_lease(team, self.teams.get(team).quotas, lifecycle)
        await self.check_disk(team)
        self.teams.get(team)  # it may have been deleted meanwhile
        with self._booked(_Booking(team, self._whole(awake))):
            yield

    @contextlib.contextmanager
    def running(self, row: SandboxRow, limits: Limits | None = None) -> Iterator[None]:
        """Book a sandbox that is to run, or to get other limits.

        Raises:
            QuotaError: The quota of its team does not allow that.
        """
        if row.team is None:
            yield
            return
        with self._booked(_Booking(row.team, self._whole({row.sandbox_id: limits or row.limits}))):
            yield

    @contextlib.contextmanager
    def sleeping(self, row: SandboxRow) -> Iterator[None]:
        """Book a sandbox among its team's sleeping ones.

        Raises:
            QuotaError: The quota of its team does not allow that.
        """
        if row.team is None:
            yield
            return
        with self._booked(_Booking(row.team, {}, asleep=frozenset([row.sandbox_id]))):
            yield

    @contextlib.contextmanager
    def owning(self, team: str | None) -> Iterator[None]:
        """Keep a team from being deleted while something is made that it will own.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        if team is None:
            yield
            return
        self.teams.get(team)
        with self._booked(_Booking(team, {})):
            yield

    async def check_disk(self, team: str | None) -> None:
        """Refuse a use of disk space if the team has used up its disk quota.

        Raises:
            QuotaError: The team has used it up.
        """
        await self._disk_left(team)

    async def within_disk(self, team: str | None, take: Callable[[int | None], Awaitable[_T]]) -> _T:
        """The result of ``take``, which gets the most bytes that it may use; None means no bound.

        If that was too little and the team can give up something replaceable, this calls ``take`` again. The
        team is not deleted meanwhile.

        Raises:
            TeamNotFoundError: There is no such team.
            QuotaError: The team has used up its disk quota, or the rest of it was too little.
        """
        while True:
            left_bytes = await self._disk_left(team)
            try:
                with self.owning(team):
                    return await take(left_bytes)
            except QuotaError:
                if team is None or not await self.give_up(team):
                    raise

    async def _disk_left(self, team: str | None) -> int | None:
        most_mib = self.teams.quotas_of(team).disk_mib
        if team is None or most_mib is None:
            return None
        used_bytes = await self.disk_bytes(team)
        while used_bytes >= most_mib << 20 and await self.give_up(team):
            used_bytes = await self.disk_bytes(team)
        if used_bytes >= most_mib << 20:
            raise QuotaError(
                f"team {team!r} has {used_bytes >> 20} of {most_mib} {_WORDS['disk_mib']}",
                hint=_HINTS["disk_mib"],
            )
        return (most_mib << 20) - used_bytes

    def limits_within(self, row: SandboxRow) -> Limits:
        """The effective limits of a sandbox. Its disk limit alone is at most its team's quota.

        A disk that the engine keeps has no limit, even if one was asked for with ``best_effort``.
        """
        limits, most_mib = row.limits.over(self.default_limits), self.teams.quotas_of(row.team).disk_mib
        if row.engine_disk:
            return msgspec.structs.replace(limits, disk_mib=None, files=None)
        own_mib = NO_LIMIT if limits.disk_mib is None else limits.disk_mib
        disk_mib = min(own_mib, NO_LIMIT if most_mib is None else most_mib)
        return msgspec.structs.replace(limits, disk_mib=None if disk_mib == NO_LIMIT else disk_mib)

    def has_default_disk(self, row: SandboxRow) -> bool:
        """Whether a sandbox has the default disk limit."""
        asked = row.limits.disk_mib is not None or row.limits.files is not None
        return not asked and not row.engine_disk and self.teams.quotas_of(row.team).disk_mib is None

    @staticmethod
    def keep_free_percent(row: SandboxRow) -> int:
        """The part of the host's disk that a sandbox leaves free; 0 if it has a disk limit of its own."""
        return 0 if row.engine_disk or row.limits.disk_mib is not None else KEEP_FREE_PERCENT

    def check_lease(self, team: str | None, lifecycle: Lifecycle) -> None:
        """Refuse a lease that is longer than the team may have.

        Raises:
            QuotaError: The lease is too long, or has no end.
        """
        if team is not None:
            check_lease(team, self.teams.quotas_of(team), lifecycle)

    def bounded(self, team: str | None, lifecycle: Lifecycle) -> Lifecycle:
        """The lifecycle with its leases shortened to the team's longest.

        No lease becomes the longest one.
        """
        most_s = self.teams.quotas_of(team).ttl_s
        if most_s is None:
            return lifecycle
        first_s, woken_s = lifecycle.ttl_s, lifecycle.wake_ttl_s
        return msgspec.structs.replace(
            lifecycle,
            ttl_s=most_s if first_s is None else min(first_s, most_s),
            wake_ttl_s=None if woken_s is None else min(woken_s, most_s),
        )

    def known_as(self, before: str, sandbox_id: str) -> None:
        """Move a booking to another id: a warm machine has had its own id from the start."""
        for booking in self._bookings:
            if before in booking.awake:
                booking.awake[sandbox_id] = booking.awake.pop(before)

    def booked(self, team: str) -> list[str]:
        """The team's bookings, in words for people."""
        return [
            "something that is being created for it" for booking in self._bookings if booking.team == team
        ]

    @contextlib.contextmanager
    def _booked(self, booking: _Booking) -> Iterator[None]:
        team = booking.team
        before = self._counted(team, self._bookings)
        after = self._counted(team, [*self._bookings, booking])
        check_growth(team, self.teams.quotas_of(team), before, after)
        self._bookings.append(booking)
        try:
            yield
        finally:
            self._bookings.remove(booking)

    def _counted(self, team: str, bookings: list[_Booking]) -> TeamUse:
        awake: dict[str, Limits] = {}
        asleep = set()
        for sandbox in self.inventory.sandboxes():
            row = sandbox.row
            if row.team == team and row.state in _AWAKE:
                awake[row.sandbox_id] = row.limits.over(self.default_limits)
            elif row.team == team:
                asleep.add(row.sandbox_id)
        ours = [booking for booking in bookings if booking.team == team]
        for booking in ours:
            for sandbox_id, limits in booking.awake.items():
                awake[sandbox_id] = _larger(limits, awake.get(sandbox_id, limits), self._vcpus)
                asleep.discard(sandbox_id)
        for booking in ours:
            asleep |= booking.asleep
        return use_of(awake, asleep, self._vcpus)

    def _whole(self, limits: Mapping[str, Limits]) -> dict[str, Limits]:
        return {sandbox_id: each.over(self.default_limits) for sandbox_id, each in limits.items()}


def _larger(one: Limits, other: Limits, all_vcpus: float) -> Limits:
    vcpus = max(all_vcpus if each.vcpus is None else each.vcpus for each in (one, other))
    return Limits(vcpus=vcpus, memory_mib=max(one.memory_mib or 0, other.memory_mib or 0))
