"""Operations in progress, owned by the supervisor and not by the client that asked for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

from atoll.errors import AtollError
from atoll.protocol import ours

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Tasks:
    """Runs operations to their end: a client that leaves does not stop one midway.

    Watches are different: they run until the supervisor stops, and do not count as operations.

    Args:
        begun: Called when an operation begins.
    """

    begun: Callable[[], None] | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set, init=False)
    _watches: set[asyncio.Task[Any]] = field(default_factory=set, init=False)

    @property
    def busy(self) -> bool:
        """Whether any operation is in progress."""
        return bool(self._tasks)

    async def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run the operation in its own task and return its result.

        Cancelling this call does not cancel it.
        """
        return await asyncio.shield(self.spawn(work))

    def spawn(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Start an operation. A failure that nobody awaits is logged."""
        if self.begun:
            self.begun()
        return self._begin(work, self._tasks)

    def watch(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start to watch something, until the supervisor stops."""
        return self._begin(work, self._watches)

    async def settle(self, timeout_s: float | None) -> None:
        """Wait for all operations now in progress, at most ``timeout_s`` seconds; None sets no limit."""
        mine = asyncio.current_task()
        tasks = [task for task in self._tasks if task is not mine]
        if tasks:
            await asyncio.wait(tasks, timeout=timeout_s)

    async def finish(self, timeout_s: float) -> None:
        """Wait for all operations and the work that they leave, at most ``timeout_s`` seconds.

        Then cancel the rest and all watches, and give them as long again to undo their unfinished work.
        """
        loop = asyncio.get_running_loop()
        end_s = loop.time() + timeout_s
        while self._tasks - {asyncio.current_task()} and (left_s := end_s - loop.time()) > 0:
            await self.settle(left_s)
        mine = asyncio.current_task()
        rest = [task for task in (*self._tasks, *self._watches) if task is not mine]
        for task in rest:
            task.cancel()
        if rest:  # cancelled operations may have much to undo, but the supervisor's end waits for no engine
            await asyncio.wait(rest, timeout=timeout_s)

    def _begin(self, work: Coroutine[Any, Any, _T], owned: set[asyncio.Task[Any]]) -> asyncio.Task[_T]:
        task = asyncio.create_task(work)
        owned.add(task)
        task.add_done_callback(owned.discard)
        task.add_done_callback(_log_failure)
        return task


def _log_failure(task: asyncio.Task[Any]) -> None:
    if task.cancelled() or (error := task.exception()) is None:
        return
    if isinstance(ours(error), AtollError):
        _log.debug("an operation failed: %s: %s", type(error).__name__, error)
    else:
        _log.error("an operation failed", exc_info=error)
