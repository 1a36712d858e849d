"""Runs a test as the supervisor runs: in a process that has joined a holder, as uid 0 with mounts of its own."""

from __future__ import annotations

import asyncio
import inspect
import os
import shutil
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from atoll.host import Holder, Home, end_holder, ensure_holder, join_holder


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


def in_child(
    holder: Holder,
    work: Callable[..., Any],
    arguments: Mapping[str, Any],
    end: Callable[[], None] | None = None,
) -> str:
    """Call ``work``, asynchronous or not, and then ``end``, in a child that has joined; the traceback of a failure."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # pytest's timer is another thread, which the child does not need.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(reader)
        _be_child(holder, work, arguments, end, writer)
    os.close(writer)
    with open(reader, errors="replace") as told:
        failure = told.read()
    _, status = os.waitpid(child, 0)
    return failure or (f"the child ended with {status}" if status else "")


def _be_child(
    holder: Holder,
    work: Callable[..., Any],
    arguments: Mapping[str, Any],
    end: Callable[[], None] | None,
    writer: int,
) -> None:
    status = 1
    try:
        join_holder(holder)
        try:
            result = work(**arguments)
            if inspect.iscoroutine(result):
                asyncio.run(result)
        finally:
            if end:
                end()
        status = 0
    except BaseException:
        os.write(writer, traceback.format_exc().encode())
    finally:
        os._exit(status)
