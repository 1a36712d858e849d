"""Runs a function of the sync tools for several rows at once. It has the same names as ``_io_async``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any


def for_each(function: Callable[..., None], rows: Sequence[tuple[Any, ...]]) -> None:
    """Call a function with each row of arguments, at the same time, and wait for all. It must not raise."""
    with ThreadPoolExecutor(max(1, len(rows)), thread_name_prefix="atoll") as pool:
        for done in [pool.submit(function, *row) for row in rows]:
            done.result()
