"""Tells how a long round goes while it goes on."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_EACH_S = 30.0


@contextlib.contextmanager
def telling(tell: Callable[[], None]) -> Iterator[None]:
    """Call ``tell`` every half minute meanwhile, in a thread of its own."""
    ended = threading.Event()

    def run() -> None:
        while not ended.wait(_EACH_S):
            tell()

    thread = threading.Thread(target=run, name="telling")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
