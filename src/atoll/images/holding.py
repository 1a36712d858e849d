"""A lock among all processes, for work that only one may do at a time."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from atoll.images.catalog import try_lock
from atoll.types import Progress

_POLL_S = 0.2


@contextlib.asynccontextmanager
async def held(path: Path, progress: Callable[[Progress], None], waiting: str) -> AsyncIterator[None]:
    """Hold the lock on a file, among all processes.

    ``waiting`` is reported once if another process has it.
    """
    told = False
    while (fd := try_lock(path)) is None:
        if not told:
            progress(Progress(step=waiting))
        told = True
        await asyncio.sleep(_POLL_S)
    try:
        yield
    finally:
        os.close(fd)
