"""Runs a test as the supervisor runs: in a process that has joined a holder, as uid 0 with mounts of its own."""

from __future__ import annotations

import asyncio
import inspect
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atoll.host import Holder, Home, end_holder, ensure_holder, join_holder
from tests.forked import in_child


@contextmanager
def held() -> Iterator[Holder]:
    """A holder of a home of its own, which ends afterwards."""
    path = Path(tempfile.mkdtemp(prefix="atoll-joined-"))
    home = Home(path)
    try:
        yield ensure_holder(home)
    finally:
        end_holder(home)
        shutil.rmtree(home.run, ignore_errors=True)
        shutil.rmtree(path)


def in_joined_child(
    holder: Holder,
    work: Callable[..., Any],
    arguments: Mapping[str, Any],
    end: Callable[[], None] | None = None,
) -> str:
    """Call ``work``, asynchronous or not, and then ``end``, in a child that has joined; the traceback of a failure."""

    def joined() -> None:
        join_holder(holder)
        try:
            result = work(**arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        finally:
            if end:
                end()

    return in_child(joined)
