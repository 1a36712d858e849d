"""What a process needs that serves others through the SDK. Programs need nothing here."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from atoll.guest import GuestRequest
from atoll.protocol import ToldLine
from atoll.sdk import _spawn
from atoll.sdk._async.api import AsyncApi
from atoll.sdk._async.builds import carry_out, request_build
from atoll.sdk._async.http import AsyncAnswer, Upload
from atoll.sdk._async.sandbox import AsyncSandbox
from atoll.sdk._caller import CALLS_FOR

__all__ = ["carry_out", "call_for", "relayed", "request_build", "sharing", "start_by", "tell"]


def start_by(start: Callable[[], None]) -> None:
    """From now on, call ``start`` whenever this process would start a supervisor itself.

    This is for a process that lacks the rights to start one. ``start`` is called in a thread, and returns
    when a supervisor runs.
    """
    _spawn.start_by(start)


def sharing(kept: int = 64) -> contextlib.AbstractContextManager[None]:
    """Return a context in which all calls of this process share connections.

    Without it, each call that does not belong to an object, like ``Sandbox.get``, makes a new connection.

    Args:
        kept: How many idle connections to keep at most.
    """
    return AsyncApi.sharing(kept)


def call_for(who: str) -> None:
    """From now on, and in this context alone, call for somebody else, whom ``info`` and the audit log name."""
    CALLS_FOR.set(who)


def tell(sandbox: AsyncSandbox, line: ToldLine) -> None:
    """Tell the audit log, later, what somebody else did in a sandbox, whom ``call_for`` has named."""
    sandbox._agent.tell(line)


async def relayed(
    method: str,
    target: str,
    headers: tuple[tuple[str, str], ...],
    body: bytes | Upload,
    length: int | None = None,
) -> AsyncAnswer:
    """Send a request to the supervisor as it is, and return the answer unread, whatever its status.

    The caller reads the answer to its end, or closes it.

    Args:
        method: The HTTP method.
        target: The path with the query part.
        headers: The headers, with names in lower case.
        body: The body, or its pieces.
        length: How many bytes the pieces have; None sends them chunked.
    """
    request = GuestRequest(method, target, headers, body if isinstance(body, bytes) else None)
    return await AsyncApi().relay(request, None if isinstance(body, bytes) else body, length)
