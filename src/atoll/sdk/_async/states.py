"""The states of one sandbox, and its info."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlencode

from atoll.protocol import (
    LimitsRequest,
    NetworkRequest,
    ResumeRequest,
    RollbackRequest,
    SnapshotRequest,
    SuspendRequest,
    UnplugRequest,
)
from atoll.sdk._async.agent import AsyncAgent
from atoll.sdk._async.api import LONG_S, AsyncApi, ref
from atoll.sdk._async.leases import AsyncLeases
from atoll.sdk._async.listing import logged
from atoll.sdk._async.snapshots import snapshot_ref
from atoll.sdk._notices import tell_recovery_since
from atoll.types import (
    Delegation,
    EgressPolicy,
    Lifecycle,
    Limits,
    Progress,
    Rows,
    SandboxInfo,
    SandboxStats,
    SnapshotInfo,
    StatsSample,
)
from atoll.types.internal import check_kind, check_network, check_number, check_text, users_attributes

# After these the supervisor has cut all connections into the sandbox.
_CUTS = ("pause", "suspend", "unplug")


class AsyncStates(AsyncLeases):
    """Gives a sandbox the methods that concern the whole of it, and not a program or file in it."""

    def __init__(self, api: AsyncApi, info: SandboxInfo) -> None:
        self.id: str = info.sandbox_id
        self.name: str | None = info.name
        self.delegation: Delegation | None = info.delegation
        self._api = api
        self._agent = AsyncAgent(api, info.sandbox_id)
        self._path = f"/v1/sandboxes/{ref(info.sandbox_id)}"

    async def logs(self, *, follow: bool = False) -> AsyncIterator[str]:
        """Iterate over the log of the sandbox's console and life cycle, as pieces of text, not lines.

        This does not wake the sandbox.

        Args:
            follow: Continue with new text until the sandbox is killed.
        """
        async for text in logged(self._api, self._path, follow=follow):
            yield text

    async def set_limits(self, limits: Limits, *, best_effort: bool = False) -> None:
        """Change the limits that are not None.

        They apply at once if the sandbox runs, else from its next start.

        Raises:
            InvalidSpecError, UnsupportedError: A limit is invalid, or this host cannot enforce or change it.
        """
        check_kind("limits", limits, Limits)
        await self._change("limits", LimitsRequest(limits=limits.check(), best_effort=best_effort))

    async def set_network(
        self, network: EgressPolicy, *, attributes: Mapping[str, str | None] | None = None
    ) -> None:
        """Change what the sandbox may reach. This takes effect at once, also on open connections.

        Args:
            network: A ``Policy``, or a preset's name: ``"none"``, ``"packages"``, ``"web-read-only"`` or
                ``"internet"``.
            attributes: Values to store with it in the same step, as at ``create``. None removes a value, and
                values that are not named stay.

        Raises:
            InvalidSpecError: It is no policy, or one of its rules is invalid or can never match. Or an
                attribute is not text, or is atoll's own.
        """
        check_network(network)
        given = dict(attributes or {})
        users_attributes({name: value or "" for name, value in given.items()})
        await self._change("network", NetworkRequest(network=network, attributes=given))

    async def stats(self) -> SandboxStats:
        """Return the sandbox's use of the host, without waking it."""
        return await self._api.call("GET", f"{self._path}/stats", SandboxStats)

    async def stats_history(self, start: float | None = None, end: float | None = None) -> list[StatsSample]:
        """Return the sandbox's use in the last hour, for every five seconds that it ran, oldest first.

        This does not wake it.

        Args:
            start: Unix seconds of the earliest sample to return. None means the oldest one stored.
            end: Unix seconds of the latest sample. None means the newest one.
        """
        given = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
        for what, value in given.items():
            check_number(what, value, hint="give Unix seconds")
        query = f"?{urlencode(given)}" if given else ""
        return Rows(await self._api.call("GET", f"{self._path}/stats/history{query}", list[StatsSample]))

    async def info(self) -> SandboxInfo:
        """Return the current info of the sandbox: its state, labels and limits. This does not wake it."""
        return await self._api.call("GET", self._path, SandboxInfo)

    async def pause(self) -> None:
        """Freeze the sandbox: its memory stays, and it uses no processor.

        Connections to it close. The next use thaws it.

        Raises:
            UnsupportedError: The sandbox's engine cannot pause.
        """
        await self._change("pause")

    async def resume(
        self,
        ttl_s: float | None = None,
        memory: bool = True,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> None:
        """Wake the sandbox from pause or suspend, exactly where it was.

        If its memory was not kept, it boots from its disk.

        Args:
            ttl_s: Length in seconds of the lease that begins. None means the length in its lifecycle. The
                lease of a running sandbox is extended to this length, never shortened.
            memory: False drops the kept memory, so that the sandbox boots from its disk.
            on_progress: Called every half second when waking takes over a second.

        Raises:
            UnsupportedError: ``memory`` is False, but the engine keeps this sandbox's disk in the checkpoint.
            QuotaError: The team's quota allows no more running sandboxes, or no such lease.
            HostMemoryError: The host has too little memory left.
        """
        Lifecycle(ttl_s=ttl_s).check()
        await self._change("resume", ResumeRequest(ttl_s=ttl_s, memory=memory), on_progress)

    async def unplug(self, reason: str | None = None) -> None:
        """Cut the sandbox's network at once, both ways, and freeze the sandbox.

        No use wakes it until ``replug``. Open connections end, too. The sandbox is kept as it is for
        inspection. ``info``, ``logs``, ``stats``, ``snapshot``, ``suspend``, ``fork`` and ``kill`` still
        work; copies of it have no network. A sandbox that sleeps stays asleep. One that is unplugged already
        keeps its first reason.

        Args:
            reason: Why, as ``info`` shows it to people.

        Raises:
            EngineError: It cannot be frozen. Its network is cut, and it counts as unplugged.
        """
        if reason is not None:
            check_text("reason", reason)
        await self._change("unplug", UnplugRequest(reason=reason))

    async def replug(self) -> None:
        """Undo ``unplug``: give the sandbox its network back, by its policy.

        If it ran before, it continues where it was; else it stays paused or suspended. Connections that it
        had are gone. A sandbox that is not unplugged stays as it is.
        """
        await self._change("replug")

    async def suspend(
        self, *, memory: bool = True, on_progress: Callable[[Progress], Any] | None = None
    ) -> None:
        """Write the sandbox's memory to disk and end its machine.

        It is safely on disk when this returns. The next use wakes it.

        Args:
            memory: False ends the processes and keeps only the disk, after flushing it. The sandbox boots at
                the next use.
            on_progress: Called every half second when it takes over a second, with how much of the memory is
                written.

        Raises:
            UnsupportedError: The sandbox's engine cannot suspend.
            NoSpaceError: The disk under the home is full. The sandbox keeps running.
            QuotaError: The team's quota allows no more sleeping sandboxes, or its disk quota is used up. The
                sandbox keeps running.
        """
        await self._change("suspend", SuspendRequest(memory=memory), on_progress)

    async def _change(
        self, how: str, body: Any = None, on_progress: Callable[[Progress], Any] | None = None
    ) -> None:
        path, began = f"{self._path}/{how}", time.time()
        if on_progress is not None:
            info = await self._api.long_call("POST", path, SandboxInfo, body, on_progress=on_progress)
        else:
            info = await self._api.call("POST", path, SandboxInfo, body, timeout_s=LONG_S, repeatable=True)
        if how in _CUTS:
            self._agent.close()  # from a server, the cut of a connection may arrive after this answer
        tell_recovery_since(info, began)

    async def snapshot(self, name: str | None = None, *, comment: str = "") -> SnapshotInfo:
        """Store the sandbox's memory and disk as they are at this moment.

        The snapshot is safely on disk when this returns. The sandbox keeps running.

        Args:
            name: Unique in the home; None leaves the snapshot unnamed.
            comment: A text for people.

        Raises:
            NameTakenError: Another snapshot has that name.
            UnsupportedError: The sandbox's engine cannot take snapshots.
            NoSpaceError: The disk under the home is full. Nothing is stored.
            QuotaError: The team's disk quota is used up. Nothing is stored.
        """
        for what, text in (("name", name), ("comment", comment)):
            if text is not None:
                check_text(what, text)
        body = SnapshotRequest(name=name, comment=comment)
        return await self._api.call("POST", f"{self._path}/snapshots", SnapshotInfo, body, timeout_s=LONG_S)

    async def snapshots(self) -> list[SnapshotInfo]:
        """List the snapshots made of this sandbox."""
        return Rows(await self._api.call("GET", f"/v1/snapshots?sandbox={ref(self.id)}", list[SnapshotInfo]))

    async def rollback(self, snapshot: str | SnapshotInfo) -> None:
        """Put the sandbox's memory and disk back to one of its own snapshots, in place.

        If this fails, nothing changes.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            InvalidSpecError: The snapshot is not in this sandbox's lineage.
        """
        body = RollbackRequest(snapshot=snapshot_ref(snapshot))
        await self._api.call("POST", f"{self._path}/rollback", SandboxInfo, body, timeout_s=LONG_S)
        self._agent.close()
