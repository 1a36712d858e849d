# Made by scripts/unasync.py from sdk/_async/supervisor.py: do not edit.
"""The supervisor of a home, and this host."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from atoll.errors import SupervisorError
from atoll.protocol import DoctorReport, Hello, Leftover, Listed, SuspendedAll
from atoll.sdk import _spawn
from atoll.sdk._sync.link import LONG_S, Link
from atoll.sdk._io_sync import in_thread

_Value = TypeVar("_Value")


class Supervisor:
    """The process that owns the sandboxes of a home. It starts by itself; nothing here is needed for daily work."""

    @staticmethod
    def hello() -> Hello | None:
        """Who runs, of whatever version, or None when none does. Starts nothing."""
        return _if_running("GET", "/hello", Hello)

    @staticmethod
    def started_by(start: Callable[[], None]) -> None:
        """Have ``start`` called whenever this process would start a supervisor, which it does from now on no more.

        For a process that lacks the rights to. ``start`` is called in a thread, and returns when one runs.
        """
        _spawn.start_by(start)

    @staticmethod
    def sandboxes() -> Listed | None:
        """What a supervisor of whatever version has, or None when none runs. Starts nothing."""
        return _if_running("GET", "/list", Listed)

    @staticmethod
    def sharing(kept: int = 64) -> contextlib.AbstractContextManager[None]:
        """A context in which all calls of this process go over the same connections, for programs that make many.

        Without it each call that is not one of an object, like ``Sandbox.get``, connects anew.

        Args:
            kept: How many idle connections to keep at most.
        """
        return Link.sharing(kept)

    @staticmethod
    def suspend_all() -> SuspendedAll | None:
        """Suspend every sandbox of a supervisor of whatever version; None when none runs. Starts nothing."""
        return _if_running("POST", "/suspend-all", SuspendedAll)

    @staticmethod
    def stop(*, force: bool = False) -> bool:
        """Suspend every sandbox and end the supervisor; False when none runs.

        Args:
            force: End it even if a sandbox could not be suspended; that one goes on without a supervisor.

        Raises:
            SupervisorError: It has not ended a minute after it said it would.
        """
        with contextlib.closing(Link(may_start=False)) as link:
            before = in_thread(_spawn.running_pid, link.home)
            answer = _if_running("POST", f"/stop{'?force=1' if force else ''}", dict[str, Any])
            if answer is None:
                return False
            if not in_thread(_spawn.wait_for_end, link.home, before):
                raise SupervisorError(
                    f"the supervisor of {link.home.path} has not ended", hint=f"look into {link.home.log}"
                )
            return True

    @staticmethod
    def doctor() -> DoctorReport:
        """Look for what can stop a sandbox from running on this host. Needs and starts no supervisor.

        Raises:
            SupervisorError: The examination itself failed.
        """
        link = Link(may_start=False)
        return in_thread(_spawn.doctor, link.home)

    @staticmethod
    def leftovers() -> list[Leftover]:
        """What a crash left on the host and nothing owns."""
        with contextlib.closing(Link()) as link:
            return link.call("GET", "/v1/leftovers", list[Leftover])

    @staticmethod
    def collect() -> list[Leftover]:
        """Remove what a crash left over, and return what was removed."""
        with contextlib.closing(Link()) as link:
            return link.call("DELETE", "/v1/leftovers", list[Leftover], timeout_s=LONG_S)


def _if_running(method: str, path: str, kind: type[_Value]) -> _Value | None:
    with contextlib.closing(Link(may_start=False)) as link:
        if in_thread(_spawn.running_pid, link.home) is None:
            return None
        return link.call(method, path, kind, timeout_s=LONG_S)
