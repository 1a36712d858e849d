"""What teams use and are about to use, against their quotas."""

from __future__ import annotations

import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import msgspec

from atoll.errors import QuotaError
from atoll.supervisor.machines.limits import KEEP_FREE_PERCENT
from atoll.types import NO_LIMIT, Lifecycle, Limits, Quotas, TeamUse

if TYPE_CHECKING:
    from atoll.supervisor.state.registry import Registry
    from atoll.supervisor.state.rows import SandboxRow
    from atoll.supervisor.tenants.teams import Teams

_T = TypeVar("_T")
_AWAKE = ("creating", "running", "paused")
_HINTS = {
    "running": "kill or suspend one",
    "suspended": "kill one",
    "vcpus": "kill or suspend a sandbox, or give less to each",
    "memory_mib": "kill or suspend a sandbox, or give less to each",
    "disk_mib": "kill sandboxes or delete snapshots",
}
_WORDS = {
    "running": "running sandboxes",
    "suspended": "sleeping sandboxes",
    "vcpus": "vCPUs",
    "memory_mib": "MiB of memory",
    "disk_mib": "MiB of disk",
}


@dataclass(eq=False)
class _Booking:
    """What will be there in a moment: sandboxes that run, by id with their limits, and that sleep."""

    team: str
    awake: dict[str, Limits]
    asleep: frozenset[str] = frozenset()


def check_growth(team: str, quotas: Quotas, before: TeamUse, after: TeamUse) -> None:
    """Refuse what would use more than the quotas allow. What uses no more than before is never refused.

    Raises:
        QuotaError: Says which quota, and how much of it is used.
    """
    for name, words in _WORDS.items():
        most = getattr(quotas, name)
        if most is None or name == "disk_mib":
            continue
        had, would = getattr(before, name), getattr(after, name)
        if would > most and would > had:
            raise QuotaError(
                f"team {team!r} would have {would:.10g} {words} and may have {most:.10g}", hint=_HINTS[name]
            )


def check_lease(team: str, quotas: Quotas, lifecycle: Lifecycle) -> None:
    """Refuse a lease that is longer than the team may have.

    Raises:
        QuotaError: It is, or there is none.
    """
    most_s = quotas.timeout_s
    if most_s is None:
        return
    first_s, woken_s = lifecycle.timeout_s, lifecycle.wake_timeout_s
    if first_s is None:
        raise QuotaError(
            f"sandboxes of team {team!r} need a lease, of at most {most_s:.10g} seconds",
            hint=f"give one: `atoll create --timeout {_length(most_s)}` or `atoll run --lease`, in the SDK "
            f"`lifecycle=Lifecycle(timeout_s={most_s:.10g})`",
        )
    if first_s > most_s or (woken_s is not None and woken_s > most_s):
        raise QuotaError(
            f"a lease of team {team!r} is at most {most_s:.10g} seconds",
            hint=f"give {most_s:.10g} seconds or less",
        )


def _length(length_s: float) -> str:
    """A length as the command line takes it."""
    for unit, unit_s in (("h", 3600), ("m", 60)):
        if length_s and length_s % unit_s == 0:
            return f"{length_s / unit_s:.10g}{unit}"
    return f"{length_s:.10g}s"


def use_of(awake: Mapping[str, Limits], asleep: Collection[str], vcpus: float) -> TeamUse:
    """The sum; ``vcpus`` is what one without a limit of its own counts as."""
    return TeamUse(
        running=len(awake),
        suspended=len(asleep),
        vcpus=round(sum(vcpus if each.vcpus is None else each.vcpus for each in awake.values()), 6),
        memory_mib=sum(each.memory_mib or 0 for each in awake.values()),
    )


class TeamQuotas:
    """Tells whether a team may have more, and keeps what it was promised until that is there.

    Looking and booking happen without a pause between them, so that of many at once only so many pass as may.
    A sandbox counts once, by its id, however often it is booked. Sandboxes of no team are not counted.

    Args:
        registry: The sandboxes.
        teams: Their quotas.
        default_limits: Of sandboxes that asked for none.
        disk_bytes: Tells what a team occupies on the disk.

    Attributes:
        builds: Tells how many builds of a team go on; who begins them looks after their quota.
        give_up: Erases something of a team that it can have again, as an image that it does not use, and tells
            whether there was any.
    """

    def __init__(
        self,
        registry: Registry,
        teams: Teams,
        default_limits: Limits,
        disk_bytes: Callable[[str], Awaitable[int]],
    ) -> None:
        self._registry = registry
        self._teams = teams
        self._default_limits = default_limits
        self._disk_bytes = disk_bytes
        self._vcpus = float(os.cpu_count() or 1)
        self._bookings: list[_Booking] = []
        self.builds: Callable[[str], int] = lambda _: 0
        self.give_up: Callable[[str], Awaitable[bool]] = _nothing

    async def use(self, team: str) -> TeamUse:
        """What a team uses now, what it was promised included.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        self._teams.get(team)
        disk_bytes = await self._disk_bytes(team)
        counted = self._counted(team, self._bookings)
        return msgspec.structs.replace(counted, disk_bytes=disk_bytes, builds=self.builds(team))

    @contextlib.asynccontextmanager
    async def making(
        self, team: str | None, awake: Mapping[str, Limits], lifecycle: Lifecycle
    ) -> AsyncIterator[None]:
        """Keep places for new sandboxes, by their ids, while they are made.

        Raises:
            TeamNotFoundError: There is no such team.
            QuotaError: It may have no more, or no such lease.
        """
        if team is None:
            yield
            return
        check_lease(team, self._teams.get(team).quotas, lifecycle)
        await self.check_disk(team)
        self._teams.get(team)  # it may be gone by now
        with self._booked(_Booking(team, self._whole(awake))):
            yield

    @contextlib.contextmanager
    def running(self, row: SandboxRow, limits: Limits | None = None) -> Iterator[None]:
        """Keep the place of a sandbox that is to run, or to have other limits.

        Raises:
            QuotaError: Its team may have no more.
        """
        if row.team is None:
            yield
            return
        with self._booked(_Booking(row.team, self._whole({row.sandbox_id: limits or row.limits}))):
            yield

    @contextlib.contextmanager
    def sleeping(self, row: SandboxRow) -> Iterator[None]:
        """Keep a place for a sandbox among its team's sleeping ones.

        Raises:
            QuotaError: Its team may have no more.
        """
        if row.team is None:
            yield
            return
        with self._booked(_Booking(row.team, {}, asleep=frozenset([row.sandbox_id]))):
            yield

    @contextlib.contextmanager
    def owning(self, team: str | None) -> Iterator[None]:
        """Keep a team from being deleted while something is made that will be its own.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        if team is None:
            yield
            return
        self._teams.get(team)
        with self._booked(_Booking(team, {})):
            yield

    async def check_disk(self, team: str | None) -> None:
        """Refuse what takes disk when the team has used up its own.

        Raises:
            QuotaError: It has.
        """
        await self._disk_left(team)

    async def within_disk(self, team: str | None, take: Callable[[int | None], Awaitable[_T]]) -> _T:
        """What ``take`` gives, which is told the most bytes that it may take, None for no bound.

        It is asked again when that was too little and the team could give up something that it can have again. The team
        is not deleted meanwhile.

        Raises:
            TeamNotFoundError: There is no such team.
            QuotaError: The team has used up its disk, or it was too little.
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
        most_mib = self._teams.quotas_of(team).disk_mib
        if team is None or most_mib is None:
            return None
        used_bytes = await self._disk_bytes(team)
        while used_bytes >= most_mib << 20 and await self.give_up(team):
            used_bytes = await self._disk_bytes(team)
        if used_bytes >= most_mib << 20:
            raise QuotaError(
                f"team {team!r} has {used_bytes >> 20} of {most_mib} {_WORDS['disk_mib']}",
                hint=_HINTS["disk_mib"],
            )
        return (most_mib << 20) - used_bytes

    def limits_within(self, row: SandboxRow) -> Limits:
        """The limits in force of a sandbox: its disk alone may not be more than its team may have.

        A disk that the engine keeps has none, even if it was asked for with ``best_effort``.
        """
        limits, most_mib = row.limits.over(self._default_limits), self._teams.quotas_of(row.team).disk_mib
        if row.engine_disk:
            return msgspec.structs.replace(limits, disk_mib=None, files=None)
        own_mib = NO_LIMIT if limits.disk_mib is None else limits.disk_mib
        disk_mib = min(own_mib, NO_LIMIT if most_mib is None else most_mib)
        return msgspec.structs.replace(limits, disk_mib=None if disk_mib == NO_LIMIT else disk_mib)

    def has_default_disk(self, row: SandboxRow) -> bool:
        """Whether the limit of a sandbox's disk is the default one."""
        asked = row.limits.disk_mib is not None or row.limits.files is not None
        return not asked and not row.engine_disk and self._teams.quotas_of(row.team).disk_mib is None

    @staticmethod
    def keep_free_percent(row: SandboxRow) -> int:
        """How much of the host's disk a sandbox leaves free: nothing is asked of one with a limit of its own."""
        return 0 if row.engine_disk or row.limits.disk_mib is not None else KEEP_FREE_PERCENT

    def check_lease(self, team: str | None, lifecycle: Lifecycle) -> None:
        """Refuse a lease that is longer than the team may have.

        Raises:
            QuotaError: It is, or there is none.
        """
        if team is not None:
            check_lease(team, self._teams.quotas_of(team), lifecycle)

    def bounded(self, team: str | None, lifecycle: Lifecycle) -> Lifecycle:
        """The lease, made as long as the team may have where it is longer or none."""
        most_s = self._teams.quotas_of(team).timeout_s
        if most_s is None:
            return lifecycle
        first_s, woken_s = lifecycle.timeout_s, lifecycle.wake_timeout_s
        return msgspec.structs.replace(
            lifecycle,
            timeout_s=most_s if first_s is None else min(first_s, most_s),
            wake_timeout_s=None if woken_s is None else min(woken_s, most_s),
        )

    def known_as(self, before: str, sandbox_id: str) -> None:
        """Let what was booked under one id be under another: a warm machine had its own all along."""
        for booking in self._bookings:
            if before in booking.awake:
                booking.awake[sandbox_id] = booking.awake.pop(before)

    def booked(self, team: str) -> list[str]:
        """What a team gets just now, in words for people."""
        return ["what is being made for it" for booking in self._bookings if booking.team == team]

    @contextlib.contextmanager
    def _booked(self, booking: _Booking) -> Iterator[None]:
        team = booking.team
        before = self._counted(team, self._bookings)
        after = self._counted(team, [*self._bookings, booking])
        check_growth(team, self._teams.quotas_of(team), before, after)
        self._bookings.append(booking)
        try:
            yield
        finally:
            self._bookings.remove(booking)

    def _counted(self, team: str, bookings: list[_Booking]) -> TeamUse:
        awake: dict[str, Limits] = {}
        asleep = set()
        for sandbox in self._registry.sandboxes():
            row = sandbox.row
            if row.team == team and row.state in _AWAKE:
                awake[row.sandbox_id] = row.limits.over(self._default_limits)
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
        return {sandbox_id: each.over(self._default_limits) for sandbox_id, each in limits.items()}


async def _nothing(_: str) -> bool:
    return False


def _larger(one: Limits, other: Limits, all_vcpus: float) -> Limits:
    vcpus = max(all_vcpus if each.vcpus is None else each.vcpus for each in (one, other))
    return Limits(vcpus=vcpus, memory_mib=max(one.memory_mib or 0, other.memory_mib or 0))
