"""Where the files of sandboxes, snapshots and volumes are in the home."""

from __future__ import annotations

from pathlib import Path

from atoll.host import Home

FIRST_DISK = "d1"


class Paths:
    """Computes the paths of one home; touches no files.

    Args:
        home: The home.
    """

    def __init__(self, home: Home) -> None:
        self.sandboxes = home.sandboxes
        self.snapshots = home.snapshots
        self.volumes = home.volumes
        self.hooks = home.path / "hooks"
        self.ask_webhook_key = home.ask_webhook_key
        self.alert_webhook_key = home.alert_webhook_key
        self.alerts = home.alerts / "alerts"
        self.seen = home.alerts / "seen"
        self.machines = home.run / "m"
        self.roots = home.run / "roots"
        self.unplug_stamp = home.run / "unplugged"
        self.forks = home.run / "forks"
        self.forks_pages = home.run / "pages"

    def sandbox(self, sandbox_id: str) -> Path:
        """The directory of a sandbox."""
        return self.sandboxes / sandbox_id

    def disk(self, sandbox_id: str, disk: str) -> Path:
        """A writable layer of a sandbox; a rollback makes another."""
        return self.sandbox(sandbox_id) / disk

    def console(self, sandbox_id: str) -> Path:
        """The console output of a sandbox's machines."""
        return self.sandbox(sandbox_id) / "console.log"

    def decisions(self, sandbox_id: str) -> Path:
        """The egress decisions about a sandbox."""
        return self.sandbox(sandbox_id) / "egress.log"

    def limits(self, sandbox_id: str) -> Path:
        """The counts for the limits of a sandbox's rules."""
        return self.sandbox(sandbox_id) / "limits.json"

    def row(self, sandbox_id: str) -> Path:
        """The copy of a sandbox's row."""
        return self.sandbox(sandbox_id) / "row.json"

    def unplug_mark(self, sandbox_id: str) -> Path:
        """The mark of a sandbox that is being unplugged."""
        return self.sandbox(sandbox_id) / "unplug.json"

    def checkpoint(self, sandbox_id: str) -> Path:
        """The checkpoint of a suspended sandbox."""
        return self.sandbox(sandbox_id) / "checkpoint"

    def new_checkpoint(self, sandbox_id: str) -> Path:
        """Where the next checkpoint of a sandbox is written before it takes the place of the last one."""
        return self.sandbox(sandbox_id) / "checkpoint.new"

    def volume(self, volume_id: str) -> Path:
        """The directory of a volume."""
        return self.volumes / volume_id

    def volume_data(self, volume_id: str) -> Path:
        """The contents of a volume: the root of its mounts."""
        return self.volume(volume_id) / "data"

    def volume_aside(self, volume_id: str) -> Path:
        """The directory for files that move into or out of a volume, out of reach of its guests."""
        return self.volume(volume_id) / "aside"

    def snapshot(self, snapshot_id: str) -> Path:
        """The directory of a snapshot, without its layer."""
        return self.snapshots / snapshot_id

    def snapshot_checkpoint(self, snapshot_id: str) -> Path:
        """The checkpoint of a snapshot."""
        return self.snapshot(snapshot_id) / "checkpoint"
