"""Keeps the newest checkpoint of a sandbox whose disk the engine keeps, for use after a crash."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path

from atoll.host import remove_tree
from atoll.supervisor.lifecycle.checkpoint_files import link_files
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.rows import SandboxRow
from atoll.supervisor.storage.trash import Trash

_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class CrashCheckpoints:
    """Keeps checkpoints for use after a crash."""

    paths: Paths
    trash: Trash

    def keep(self, row: SandboxRow, checkpoint: Path) -> None:
        """Make the next use of a sandbox after a crash go on from this checkpoint.

        Others may own the checkpoint's files too.

        Does nothing if the disk is made of layers: a crash leaves such a disk as it is. If this fails, the
        previous checkpoint stays.
        """
        if not row.engine_disk:
            return
        into = self.paths.checkpoint(row.sandbox_id)
        aside = self.paths.new_checkpoint(row.sandbox_id)
        try:
            if aside.exists():
                remove_tree(aside)
            aside.mkdir(mode=0o700)
            link_files(checkpoint, aside)
            self.trash.take(into)
            os.rename(aside, into)
        except OSError as error:
            _log.warning("sandbox %s has no new checkpoint for a crash: %s", row.sandbox_id, error)
