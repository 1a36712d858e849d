"""Runs blocking functions in threads that nobody has to wait for."""

from __future__ import annotations

import contextlib
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import anyio
from anyio.from_thread import BlockingPortal


async def in_thread(portal: BlockingPortal, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function in a thread of its own, with this task's context, and return its result.

    A cancelled caller does not wait for its end, nor does the end of the process.
    """
    context, done = contextvars.copy_context(), anyio.Event()
    returned: list[Any] = []
    raised: list[BaseException] = []

    def work() -> None:
        try:
            returned.append(context.run(function, *args))
        except BaseException as error:
            raised.append(error)
        with contextlib.suppress(RuntimeError):  # nobody waits any more
            portal.start_task_soon(done.set)

    threading.Thread(target=work, name="atoll-evals", daemon=True).start()
    await done.wait()
    if raised:
        raise raised[0]
    return returned[0]
