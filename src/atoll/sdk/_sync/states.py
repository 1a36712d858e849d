# Made by scripts/unasync.py from sdk/_async/states.py: do not edit.
"""The states of one sandbox, and what is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from atoll.protocol import LimitsRequest, RollbackRequest, SnapshotRequest
from atoll.sdk._sync.agent import Agent
from atoll.sdk._sync.link import LONG_S, Link, ref
from atoll.sdk._sync.listing import logged
from atoll.sdk._sync.snapshots import snapshot_ref
from atoll.types import Limits, SandboxInfo, SandboxStats, SnapshotInfo


class States:
    """What of a sandbox concerns the sandbox as a whole, and no program or file in it."""

    def __init__(self, link: Link, info: SandboxInfo) -> None:
        self.id = info.sandbox_id
        self.name = info.name
        self._link = link
        self._agent = Agent(link, info.sandbox_id)
        self._path = f"/v1/sandboxes/{ref(info.sandbox_id)}"

    def logs(self, *, follow: bool = False) -> Iterator[str]:
        """Iterate over what the sandbox's console and its life cycle wrote. It is not woken.

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
        self._change("limits", LimitsRequest(limits=limits.check(), best_effort=best_effort))

    def stats(self) -> SandboxStats:
        """What it uses of the host. It is not woken."""
        return self._link.call("GET", f"{self._path}/stats", SandboxStats)

    def info(self) -> SandboxInfo:
        """What is known of it now: its state, labels and limits. It is not woken."""
        return self._link.call("GET", self._path, SandboxInfo)

    def pause(self) -> None:
        """Freeze it: its memory stays, and it uses no processor. Connections to it are closed; its next use thaws it.

        Raises:
            UnsupportedError: Its engine cannot.
        """
        self._change("pause")

    def resume(self) -> None:
        """Wake it from pause or suspend, exactly where it was."""
        self._change("resume")

    def suspend(self) -> None:
        """Put its memory on disk and end its machine; it is on disk for good when this returns. Its next use wakes it.

        Raises:
            UnsupportedError: Its engine cannot.
            NoSpaceError: The disk under the home is full; it goes on running.
        """
        self._change("suspend")

    def _change(self, how: str, body: Any = None) -> None:
        path = f"{self._path}/{how}"
        self._link.call("POST", path, SandboxInfo, body, timeout_s=LONG_S, repeatable=True)

    def snapshot(self, name: str | None = None, *, comment: str = "") -> SnapshotInfo:
        """Keep its memory and disk of this instant; it goes on running. On disk for good when this returns.

        Args:
            name: Unique in the home; None gives it no name.
            comment: For people.

        Raises:
            NameTakenError: Another snapshot has that name.
            UnsupportedError: Its engine cannot.
            NoSpaceError: The disk under the home is full; nothing is kept.
        """
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
