"""Keeps a home in order: its disk, and its sandboxes over a reboot of the host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from atoll.protocol import DrainRequest, FsckRequest
from atoll.sdk._async.api import LONG_S, AsyncApi, ignored, ref
from atoll.types import (
    DiskReport,
    DrainInfo,
    DrainReport,
    HostMemory,
    MetricFamily,
    Progress,
    UndrainReport,
    UpgradeReport,
    VerifyReport,
)


class AsyncHousekeeping:
    """Measures a home's disk use, checks its stored files, and suspends all its sandboxes before a reboot.

    Everything but ``disk_use`` works only on the machine with the sandboxes.
    """

    @staticmethod
    async def disk_use(team: str | None = None) -> DiskReport:
        """Measure the disk use of each sandbox, snapshot, image, template, volume and team.

        It does not measure again what has not changed since the last time. With a server, it reports on the
        key's team.

        Args:
            team: Report only on this team. None reports on everything.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        query = "" if team is None else f"?team={ref(team)}"
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/disk{query}", DiskReport, timeout_s=LONG_S)

    @staticmethod
    async def host_memory() -> HostMemory:
        """Return how much of the host's memory is available, and how much of it sandboxes leave free."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/memory", HostMemory)

    @staticmethod
    async def metrics() -> list[MetricFamily]:
        """Return what a monitoring system wants to know of the home. Counters begin with the supervisor.

        A server gives the same as text for Prometheus at ``/metrics``.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/metrics", list[MetricFamily])

    @staticmethod
    async def drain(
        *, timeout_s: float | None = None, on_progress: Callable[[Progress], Any] | None = None
    ) -> DrainReport:
        """Suspend all sandboxes, and let none start or wake until ``undrain``, also after a reboot.

        Calls that would start or wake one raise DrainingError meanwhile. The drain continues if this is
        cancelled.

        Args:
            timeout_s: Seconds to wait; a sandbox that does not sleep by then counts as failed. None waits for
                ever.
            on_progress: Called with how many sleep.

        Raises:
            InvalidSpecError: The time is invalid.
        """
        body = DrainRequest(timeout_s=timeout_s).check()
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "POST", "/v1/drain", DrainReport, body, on_progress=on_progress or ignored
            )

    @staticmethod
    async def drained() -> DrainInfo:
        """Return whether the home is drained, and which sandboxes will run again afterwards."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/drain", DrainInfo)

    @staticmethod
    async def undrain(*, on_progress: Callable[[Progress], Any] | None = None) -> UndrainReport:
        """End a drain: sandboxes start and wake again, and those that ran before run again.

        Args:
            on_progress: Called with how many run.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "DELETE", "/v1/drain", UndrainReport, on_progress=on_progress or ignored
            )

    @staticmethod
    async def fsck(
        *, repair: bool = False, on_progress: Callable[[Progress], Any] | None = None
    ) -> VerifyReport:
        """Check everything that is stored: memories, layers, images, and the records of all of it.

        Everything keeps running. ``whole`` is False if something is lost. Each part names what needs it.

        Args:
            repair: Repair parts that have a second copy. Nothing is removed.
            on_progress: Called with how much was read.

        Raises:
            HostError: Something could not be checked.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.long_call(
                "POST",
                "/v1/fsck",
                VerifyReport,
                FsckRequest(repair=repair),
                on_progress=on_progress or ignored,
            )

    @staticmethod
    async def upgrade_check() -> UpgradeReport:
        """Return the sleeping sandboxes and snapshots that need an engine other than the installed one.

        They wake with their own engine, which the home keeps as long as something needs it.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/upgrade", UpgradeReport)
