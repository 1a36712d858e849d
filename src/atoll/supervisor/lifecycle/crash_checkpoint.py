"""What a crash leaves of a sandbox whose disk the engine keeps: its newest instant, memory and disk."""

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
    """Have the next use of a sandbox after a crash go on from this checkpoint, whoever else owns its files.

    Does nothing where the disk is made of layers: a crash leaves it as it is. Where it cannot be done, the
    instant before stays.
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
