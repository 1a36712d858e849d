"""Erasing directories of the home, whoever owns the files in them."""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path

from atoll.host import remove_tree

ASIDE = ".erased-"


async def erase(path: Path) -> None:
    """Remove a directory tree; nothing there is no error.

    It is renamed first, so that a crash in the middle leaves something that is plainly nobody's.
    """
    aside = path if path.name.startswith(ASIDE) else path.with_name(f"{ASIDE}{path.name}")
    if aside != path:
        with contextlib.suppress(FileNotFoundError):  # nothing there
            if aside.exists():
                await asyncio.to_thread(remove_tree, aside)
            os.rename(path, aside)
    if aside.exists():
        await asyncio.to_thread(remove_tree, aside)
