"""Where the parts of sandboxes and snapshots lie in the home."""

from __future__ import annotations

from pathlib import Path

from atoll.host import Home

FIRST_DISK = "d1"


class Paths:
    """Paths of one home; touches nothing.

    Args:
        home: The home.
    """

    def __init__(self, home: Home) -> None:
        self.sandboxes = home.sandboxes
        self.snapshots = home.snapshots
        self.volumes = home.volumes
        self.machines = home.run / "m"
        self.roots = home.run / "roots"
        self.forks = home.run / "forks"
        self.forks_pages = home.run / "pages"

    def sandbox(self, sandbox_id: str) -> Path:
        """All of a sandbox."""
        return self.sandboxes / sandbox_id

    def disk(self, sandbox_id: str, disk: str) -> Path:
        """One writable layer of a sandbox; a rollback makes another."""
        return self.sandbox(sandbox_id) / disk

    def console(self, sandbox_id: str) -> Path:
        """What the machines of a sandbox have written to their console."""
        return self.sandbox(sandbox_id) / "console.log"

    def row(self, sandbox_id: str) -> Path:
        """The copy of its row."""
        return self.sandbox(sandbox_id) / "row.json"

    def checkpoint(self, sandbox_id: str) -> Path:
        """The memory of a suspended sandbox."""
        return self.sandbox(sandbox_id) / "checkpoint"

    def volume(self, volume_id: str) -> Path:
        """All of a volume."""
        return self.volumes / volume_id

    def volume_data(self, volume_id: str) -> Path:
        """What a volume holds: the root of its mounts."""
        return self.volume(volume_id) / "data"

    def volume_aside(self, volume_id: str) -> Path:
        """What comes into a volume or leaves it, out of its guests' reach."""
        return self.volume(volume_id) / "aside"

    def snapshot(self, snapshot_id: str) -> Path:
        """All of a snapshot but its layer."""
        return self.snapshots / snapshot_id

    def snapshot_checkpoint(self, snapshot_id: str) -> Path:
        """The memory of a snapshot."""
        return self.snapshot(snapshot_id) / "checkpoint"
