"""Runs what blocks in a thread that nobody has to wait for."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def off_loop(work: Callable[[], _T]) -> _T:
    """Run the work in a thread of its own, and return its result.

    Cancelling this call leaves the thread to itself. It does not hold up the end of the process.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[_T] = loop.create_future()

    def tell(settle: Callable[[Any], None], value: object) -> None:
        if not done.done():
            settle(value)

    def run() -> None:
        try:
            told: tuple[Callable[[Any], None], object] = (done.set_result, work())
        except Exception as error:  # it belongs to whoever waits
            told = (done.set_exception, error)
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, *told)

    threading.Thread(target=run, name="off loop", daemon=True).start()
    return await done
