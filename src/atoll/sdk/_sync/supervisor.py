# Made by scripts/unasync.py from sdk/_async/supervisor.py: do not edit.
"""The supervisor of a home, and this host."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeVar

from atoll.errors import SupervisorError
from atoll.protocol import (
    DoctorReport,
    EmergencyUnplugged,
    Hello,
    Leftover,
    Listed,
    SuspendedAll,
    UnpluggedAll,
    UnplugRequest,
)
from atoll.sdk import _spawn
from atoll.sdk._sync.api import LONG_S, Api
from atoll.sdk._io_sync import in_thread
from atoll.types.internal import check_number, check_text, texts_of

_Value = TypeVar("_Value")


class Supervisor:
    """Examines and controls the process that owns the sandboxes of a home.

    That process starts by itself; daily work needs nothing here.
    """

    @staticmethod
    def hello() -> Hello | None:
        """Return the greeting of a supervisor of any version, or None if none runs. Starts nothing."""
        return _if_running("GET", "/hello", Hello)

    @staticmethod
    def sandboxes() -> Listed | None:
        """Return the sandboxes of a supervisor of any version, or None if none runs. Starts nothing."""
        return _if_running("GET", "/list", Listed)

    @staticmethod
    def suspend_all() -> SuspendedAll | None:
        """Suspend every sandbox of a supervisor of any version.

        Returns None if none runs, and starts nothing.
        """
        return _if_running("POST", "/suspend-all", SuspendedAll)

    @staticmethod
    def answers(within_s: float = 2.0) -> bool:
        """Tell whether the supervisor answers within that many seconds, or none runs.

        One that hangs does not answer. ``unplug_without`` does not need it.
        """
        check_number("within_s", within_s, least=0.001, hint="give seconds")
        with contextlib.closing(Api(may_start=False)) as api:
            return in_thread(_spawn.answers, api.home, within_s)

    @staticmethod
    def unplug_all(reason: str | None = None) -> UnpluggedAll:
        """Unplug every sandbox of the home, see ``Sandbox.unplug``: all networks first.

        A failure does not stop the others.
        """
        if reason is not None:
            check_text("reason", reason)
        with contextlib.closing(Api()) as api:
            body = UnplugRequest(reason=reason)
            return api.call("POST", "/v1/unplug-all", UnpluggedAll, body, timeout_s=LONG_S)

    @staticmethod
    def unplug_without(
        sandboxes: Sequence[str] = (), reason: str | None = None
    ) -> list[EmergencyUnplugged]:
        """Unplug sandboxes in a separate process, without the supervisor, which may hang.

        The supervisor keeps them unplugged when it continues, and so does the next one.

        Args:
            sandboxes: Their ids or names. None of them means every sandbox of the home.
            reason: Why, as ``info`` shows it to people.

        Raises:
            SandboxNotFoundError: There is no such sandbox. Nothing was done.
            SupervisorError: The process failed.
        """
        named = texts_of("sandboxes", sandboxes)
        if reason is not None:
            check_text("reason", reason)
        api = Api(may_start=False)
        return in_thread(_spawn.emergency_unplug, api.home, named, reason)

    @staticmethod
    def stop(*, force: bool = False) -> bool:
        """Suspend every sandbox and end the supervisor. Returns False if none runs.

        Args:
            force: End the supervisor even if a sandbox could not be suspended. That sandbox keeps running
                without a supervisor.

        Raises:
            SupervisorError: The supervisor has not ended a minute after it said it would.
        """
        with contextlib.closing(Api(may_start=False)) as api:
            before = in_thread(_spawn.running_pid, api.home)
            answer = _if_running("POST", f"/stop{'?force=1' if force else ''}", dict[str, Any])
            if answer is None:
                return False
            if not in_thread(_spawn.wait_for_end, api.home, before):
                raise SupervisorError(
                    f"the supervisor of {api.home.path} has not ended", hint=f"see {api.home.log}"
                )
            return True

    @staticmethod
    def doctor() -> DoctorReport:
        """Look for what can stop a sandbox from running on this host.

        This needs no supervisor and starts none.

        Raises:
            SupervisorError: The examination itself failed.
        """
        api = Api(may_start=False)
        return in_thread(_spawn.doctor, api.home)

    @staticmethod
    def leftovers() -> list[Leftover]:
        """List the things that a crash left on the host without an owner."""
        with contextlib.closing(Api()) as api:
            return api.call("GET", "/v1/leftovers", list[Leftover])

    @staticmethod
    def collect() -> list[Leftover]:
        """Remove the things that a crash left on the host, and return them."""
        with contextlib.closing(Api()) as api:
            return api.call("DELETE", "/v1/leftovers", list[Leftover], timeout_s=LONG_S)


def _if_running(method: str, path: str, kind: type[_Value]) -> _Value | None:
    with contextlib.closing(Api(may_start=False)) as api:
        if in_thread(_spawn.running_pid, api.home) is None:
            return None
        return api.call(method, path, kind, timeout_s=LONG_S)
