"""Reports the progress of a state change to the waiting client once it takes over a second."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from atoll.engines import memory_bytes
from atoll.supervisor.state.paths import Paths
from atoll.supervisor.state.sandbox import Sandbox
from atoll.types import Progress

FIRST_S = 1.0
EACH_S = 0.5


@contextlib.asynccontextmanager
async def told_if_slow(
    report: Callable[[Progress], None],
    look: Callable[[], Progress],
    *,
    first_s: float = FIRST_S,
    each_s: float = EACH_S,
) -> AsyncIterator[None]:
    """While the block runs, report the result of ``look``: first after ``first_s``, then every ``each_s``."""

    async def tell() -> None:
        await asyncio.sleep(first_s)
        while True:
            report(look())
            await asyncio.sleep(each_s)

    telling = asyncio.create_task(tell())
    try:
        yield
    finally:
        telling.cancel()
        # The report is not awaited: an undeliverable report must not fail the operation.
        await asyncio.wait({telling})


def how_far(paths: Paths, sandbox: Sandbox) -> Progress:
    """How much of the memory is in its files, for a sandbox being suspended. Pages of zeros never are."""
    running = sandbox.running
    total = memory_bytes(running.machine) if running is not None else None
    if not total:
        return Progress(step="suspending")
    done = _files_bytes(paths.new_checkpoint(sandbox.sandbox_id))
    return Progress(step="writing its memory", done=min(done, total), total=total, unit="bytes")


def _files_bytes(directory: Path) -> int:
    try:
        return sum(entry.stat().st_size for entry in os.scandir(directory))
    except OSError:  # the file is not started, or complete and already in its place
        return 0
