"""Keeps a program running that others need."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence

from atoll.errors import AtollError
from atoll.host import RunProgramError

_CALM_S = 30.0
_log = logging.getLogger(__name__)


async def keep_running(name: str, run: Callable[[], Awaitable[None]], pauses_s: Sequence[float]) -> None:
    """Run a program again and again, until this is cancelled.

    Args:
        name: What the log calls it.
        run: Runs it once, to its end.
        pauses_s: How long to wait before each attempt in a row; the last one holds for all that follow.
    """
    failures = 0
    while True:
        await asyncio.sleep(pauses_s[min(failures, len(pauses_s) - 1)])
        began_s = time.monotonic()
        try:
            await run()
        except (AtollError, OSError, RunProgramError, TimeoutError) as error:
            _log.error("%s cannot run: %s", name, error)
        failures = 1 if time.monotonic() - began_s > _CALM_S else failures + 1
