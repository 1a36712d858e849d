"""Runs a function of the async tools for several rows at once. It has the same names as ``_io_sync``."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import anyio


async def for_each(
    function: Callable[..., Coroutine[Any, Any, None]], rows: Sequence[tuple[Any, ...]]
) -> None:
    """Call a function with each row of arguments, at the same time, and wait for all. It must not raise."""
    async with anyio.create_task_group() as group:
        for row in rows:
            group.start_soon(function, *row)
