# Made by scripts/unasync.py from sdk/_async/states.py: do not edit.
"""The states of one sandbox, and what is known of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, get_args
from urllib.parse import urlencode

from atoll.protocol import (
    LimitsRequest,
    NetworkRequest,
    ResumeRequest,
    RollbackRequest,
    SnapshotRequest,
    SuspendRequest,
    TimeoutRequest,
)
from atoll.sdk._sync.agent import Agent
from atoll.sdk._sync.link import LONG_S, Link, ref
from atoll.sdk._sync.listing import logged
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.sdk._notices import tell_recovery_since
from atoll.types import (
    EgressPolicy,
    Lifecycle,
    Limits,
    Progress,
    SandboxInfo,
    SandboxStats,
    SnapshotInfo,
    StatsSample,
    check_choice,
    check_kind,
    check_number,
    check_text,
)


class States:
    """What of a sandbox concerns the sandbox as a whole, and no program or file in it."""

    def __init__(self, link: Link, info: SandboxInfo) -> None:
        self.id = info.sandbox_id
        self.name = info.name
        self._link = link
        self._agent = Agent(link, info.sandbox_id)
        self._path = f"/v1/sandboxes/{ref(info.sandbox_id)}"

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """Iterate over what the sandbox's console and its life cycle wrote: pieces of text, not lines.

        It is not woken.

        Args:
            follow: Go on with what comes, until the sandbox is killed.
        """
        for text in logged(self._link, self._path, follow=follow):
            yield text

    def set_limits(self, limits: Limits, *, best_effort: bool = False) -> None:
        """Change the limits that are not None: at once where it runs, else from its next start on.

        Raises:
            InvalidSpecError, UnsupportedError: One is not possible, or this host cannot hold or change it.
        """
        check_kind("limits", limits, Limits)
        self._change("limits", LimitsRequest(limits=limits.check(), best_effort=best_effort))

    def set_timeout(self, timeout_s: float | None, *, extend_only: bool = False) -> SandboxInfo:
        """Have its lease end in ``timeout_s`` seconds from now, however long it was; what then is in its lifecycle.

        It counts for this run: the next resume begins a lease as the lifecycle says.

        Args:
            timeout_s: Seconds; 0 ends it now, None is no lease any more.
            extend_only: Leave a lease that ends later, or never, as it is.

        Raises:
            StateError: It sleeps: ``resume`` takes a ``timeout_s``.
            InvalidSpecError: ``timeout_s`` is no length.
            QuotaError: Its team may have no such lease.
        """
        Lifecycle(timeout_s=timeout_s).check()
        body = TimeoutRequest(timeout_s=timeout_s, extend_only=extend_only)
        return self._link.call("POST", f"{self._path}/timeout", SandboxInfo, body, timeout_s=LONG_S)

    def set_network(self, network: EgressPolicy) -> None:
        """Change what it may reach: at once, connections to the outside that it has included.

        Raises:
            InvalidSpecError: ``network`` is another word.
        """
        check_choice("network", network, get_args(EgressPolicy))
        self._change("network", NetworkRequest(network=network))

    def stats(self) -> SandboxStats:
        """What it uses of the host. It is not woken."""
        return self._link.call("GET", f"{self._path}/stats", SandboxStats)

    def stats_history(self, start: float | None = None, end: float | None = None) -> list[StatsSample]:
        """What it used while it ran in the last hour, every five seconds, oldest first. It is not woken.

        Args:
            start: Unix seconds of the first sample that may be in it; None is the oldest that there is.
            end: Unix seconds of the last; None is the newest.
        """
        given = {name: value for name, value in (("start", start), ("end", end)) if value is not None}
        for what, value in given.items():
            check_number(what, value, hint="give Unix seconds")
        query = f"?{urlencode(given)}" if given else ""
        return self._link.call("GET", f"{self._path}/stats/history{query}", list[StatsSample])

    def info(self) -> SandboxInfo:
        """What is known of it now: its state, labels and limits. It is not woken."""
        return self._link.call("GET", self._path, SandboxInfo)

    def pause(self) -> None:
        """Freeze it: its memory stays, and it uses no processor. Connections to it are closed; its next use thaws it.

        Raises:
            UnsupportedError: Its engine cannot.
        """
        self._change("pause")

    def resume(
        self,
        timeout_s: float | None = None,
        memory: bool = True,
        *,
        on_progress: Callable[[Progress], Any] | None = None,
    ) -> None:
        """Wake it from pause or suspend, exactly where it was; one whose memory was not kept boots from its disk.

        Args:
            timeout_s: Length of the lease that begins; None is what its lifecycle says. One that runs already has
                its lease extended to that, never shortened.
            memory: False drops the memory that was kept: it boots from its disk.
            on_progress: Called each half second when it takes over a second.

        Raises:
            UnsupportedError: Its disk is the engine's own, which is in the memory.
            QuotaError: Its team may have no more that run, or no such lease.
        """
        Lifecycle(timeout_s=timeout_s).check()
        self._change("resume", ResumeRequest(timeout_s=timeout_s, memory=memory), on_progress)

    def suspend(
        self, *, memory: bool = True, on_progress: Callable[[Progress], Any] | None = None
    ) -> None:
        """Put its memory on disk and end its machine; it is on disk for good when this returns. Its next use wakes it.

        Args:
            memory: False ends its processes and keeps the disk alone: what was written is flushed first, and it
                boots at the next use.
            on_progress: Called each half second when it takes over a second: how much of its memory is written.

        Raises:
            UnsupportedError: Its engine cannot.
            NoSpaceError: The disk under the home is full; it goes on running.
            QuotaError: Its team may have no more that sleep, or has used up its disk; it goes on running.
        """
        self._change("suspend", SuspendRequest(memory=memory), on_progress)

    def _change(
        self, how: str, body: Any = None, on_progress: Callable[[Progress], Any] | None = None
    ) -> None:
        path, began = f"{self._path}/{how}", time.time()
        if on_progress is not None:
            info = self._link.long_call("POST", path, SandboxInfo, body, on_progress=on_progress)
        else:
            info = self._link.call("POST", path, SandboxInfo, body, timeout_s=LONG_S, repeatable=True)
        tell_recovery_since(info, began)

    def snapshot(self, name: str | None = None, *, comment: str = "") -> SnapshotInfo:
        """Keep its memory and disk of this instant; it goes on running. On disk for good when this returns.

        Args:
            name: Unique in the home; None gives it no name.
            comment: For people.

        Raises:
            NameTakenError: Another snapshot has that name.
            UnsupportedError: Its engine cannot.
            NoSpaceError: The disk under the home is full; nothing is kept.
            QuotaError: Its team has used up its disk; nothing is kept.
        """
        for what, text in (("name", name), ("comment", comment)):
            if text is not None:
                check_text(what, text)
        body = SnapshotRequest(name=name, comment=comment)
        return self._link.call("POST", f"{self._path}/snapshots", SnapshotInfo, body, timeout_s=LONG_S)

    def snapshots(self) -> list[SnapshotInfo]:
        """The snapshots that were made of it."""
        return self._link.call("GET", f"/v1/snapshots?sandbox={ref(self.id)}", list[SnapshotInfo])

    def rollback(self, snapshot: str | SnapshotInfo) -> None:
        """Put it back to a snapshot of its own, memory and disk, in place. When that fails it is as it was.

        Raises:
            SnapshotNotFoundError: There is no such snapshot.
            InvalidSpecError: It is not one of this sandbox's line.
        """
        body = RollbackRequest(snapshot=snapshot_ref(snapshot))
        self._link.call("POST", f"{self._path}/rollback", SandboxInfo, body, timeout_s=LONG_S)
        self._agent.close()
