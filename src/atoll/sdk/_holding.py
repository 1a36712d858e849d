"""Holds a sandbox for as long as this process is in its ``with``: the supervisor learns when the process is gone."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from atoll.errors import AtollError, NotFoundError, UnsupportedError
from atoll.sdk._deadline import Deadline
from atoll.types import SandboxInfo

if TYPE_CHECKING:
    from atoll.host import Home
    from atoll.sdk._server import Server
    from atoll.sdk._sync.api import Api
    from atoll.sdk._sync.http import Answer

# The supervisor says something every 20 seconds.
_SILENCE_S = 60.0
_FIRST_PAUSE_S, _LAST_PAUSE_S = 0.1, 5.0


class Holding:
    """Keeps a call open that holds a sandbox, and makes it again when it ends, in a thread of its own.

    So it neither delays the caller nor needs an event loop that runs. It starts no supervisor: a new one that
    somebody else starts is told within 5 seconds.

    Args:
        where: The home, or the server, that has the sandbox.
        path: The supervisor's path of the sandbox.
        binds: Whether the sandbox is to end with those that hold it.
    """

    def __init__(self, where: Home | Server, path: str, *, binds: bool) -> None:
        self._where = where
        self._path = f"{path}/hold?binds={int(binds)}"
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._held: Answer | None = None
        threading.Thread(target=self._run, daemon=True, name="atoll hold").start()

    def end(self) -> None:
        """Hold it no longer. Returns at once. Idempotent."""
        with self._lock:
            self._over.set()
            if self._held is not None:
                self._held.abort()

    def _run(self) -> None:
        api, pause_s = api_of(self._where), _FIRST_PAUSE_S
        with contextlib.closing(api):
            while not self._over.is_set():
                try:
                    self._hold(api)
                    pause_s = _FIRST_PAUSE_S
                except (NotFoundError, UnsupportedError):
                    return  # it was killed
                except (AtollError, OSError):
                    pause_s = min(2 * pause_s, _LAST_PAUSE_S)
                self._over.wait(pause_s)

    def _hold(self, api: Api) -> None:
        _, answer = api.hold("POST", self._path, SandboxInfo)
        with contextlib.closing(answer):
            with self._lock:
                if self._over.is_set():
                    return
                self._held = answer
            answer.deadline = Deadline(None, silence_s=_SILENCE_S)
            try:
                while answer.read():
                    pass
            finally:
                with self._lock:
                    self._held = None


def api_of(where: Home | Server, kept: int = 0) -> Api:
    """Return what calls a home or a server, and starts no supervisor, for a thread of any program."""
    # imported only now: async programs need these modules for nothing else
    from atoll.host import Home
    from atoll.sdk._sync.api import Api
    from atoll.sdk._sync.places import Here, There

    return Api(Here(where, may_start=False) if isinstance(where, Home) else There(where), kept=kept)
