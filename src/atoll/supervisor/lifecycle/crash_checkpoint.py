"""Keeps the newest checkpoint of a sandbox whose disk the engine keeps, for use after a crash."""

from __future__ import annotations

import logging
import os
from pathlib import Path

from atoll.host import remove_tree
from atoll.supervisor.lifecycle.checkpoint_files import link_files
from atoll.supervisor.lifecycle.parts import Parts
from atoll.supervisor.state.rows import SandboxRow

_log = logging.getLogger(__name__)


def keep_instant(parts: Parts, row: SandboxRow, checkpoint: Path) -> None:
    """Make the next use of a sandbox after a crash go on from this checkpoint.

    Something else may own the checkpoint's files.

    Does nothing if the disk is made of layers: a crash leaves such a disk as it is. If this fails, the
    previous checkpoint stays.
    """
    if not row.engine_disk:
        return
    into = parts.paths.checkpoint(row.sandbox_id)
    aside = into.with_name("checkpoint.new")
    try:
        if aside.exists():
            remove_tree(aside)
        aside.mkdir(mode=0o700)
        link_files(checkpoint, aside)
        parts.trash.take(into)
        os.rename(aside, into)
    except OSError as error:
        _log.warning("a crash would bring sandbox %s further back: %s", row.sandbox_id, error)
