# Made by scripts/unasync.py from sdk/_async/ports.py: do not edit.
"""The ports of a sandbox, reached from this host."""

from __future__ import annotations

import socket
from collections.abc import Callable

from atoll.errors import DeadlineError, NotFoundError, SandboxNotFoundError, StateError
from atoll.protocol import LinkRequest, check_link
from atoll.sdk._sync.api import Api
from atoll.sdk._sync.forward import Forward
from atoll.sdk._sync.places import There
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._foreign import Part
from atoll.sdk._io_sync import in_thread, sleep, user_socket
from atoll.sdk._links import url_of
from atoll.types import SandboxInfo
from atoll.types.internal import check_number

_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.5


class Ports(Part):
    """The ports of a sandbox. A connection to one wakes the sandbox."""

    def __init__(self, api: Api, sandbox_id: str, info: Callable[[], SandboxInfo]) -> None:
        self._api = api
        self._sandbox_id = sandbox_id
        self._info = info

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of sandbox {self._sandbox_id}>"

    def dial(self, port: int) -> socket.socket:
        """Connect to a TCP port inside and return the socket.

        This wakes the sandbox. The caller closes the socket.

        Raises:
            InvalidSpecError: ``port`` is not between 1 and 65535.
            NotFoundError: Nothing listens on this port, on any address inside.
            SandboxNotFoundError: The sandbox is gone.
            AsleepError: The sandbox sleeps, and a use does not wake it.
            DeadlineError: The sandbox did not answer in time.
        """
        check_number("port", port, least=1, most=65535, whole=True, hint="give 1 to 65535")
        return user_socket(self._api.dial(self._sandbox_id, port))

    def wait(self, port: int, *, timeout_s: float | None = 60.0) -> None:
        """Wait until something inside accepts connections on a TCP port.

        It connects, again and again, and closes the connection that succeeds. This wakes the sandbox.

        Args:
            port: The port in the sandbox.
            timeout_s: Seconds to wait; None means as long as it takes.

        Raises:
            InvalidSpecError: ``port`` is not between 1 and 65535.
            DeadlineError: Nothing accepted a connection within ``timeout_s``.
            AsleepError: The sandbox sleeps, and a use does not wake it.
        """
        check_timeout(timeout_s)
        deadline, pause_s = Deadline(timeout_s), _FIRST_LOOK_S
        while True:
            try:
                (self.dial(port)).close()
            except SandboxNotFoundError:
                raise
            except NotFoundError:
                pass  # nothing listens yet
            else:
                return
            try:
                left_s = deadline.left()
            except TimeoutError:
                raise DeadlineError(
                    f"nothing accepted a connection on port {port} within {timeout_s:g} s",
                    hint="see whether the server still runs, and attach to it: `atoll attach --list`",
                    sandbox_id=self._sandbox_id,
                ) from None
            sleep(pause_s if left_s is None else min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def forward(self, port: int, local_port: int = 0) -> Forward:
        """Forward a port of 127.0.0.1 to a port inside.

        Returns a context: ``port`` is the local port, and ``url`` its http address.

        Args:
            port: The port in the sandbox.
            local_port: The port on this host; 0 picks a free one.

        Raises:
            InvalidSpecError: One of the two is not a port number.
        """
        return Forward(self._api, self._sandbox_id, port, local_port)

    def url(self, port: int, *, expires_in_s: float | None = None) -> str:
        """Return the address at which a browser reaches a port inside, through the running ``atoll serve``.

        Args:
            port: The port in the sandbox.
            expires_in_s: Sign the address: it then opens the port to whoever has it, for this many seconds,
                even if its ports are closed. None signs nothing.

        Raises:
            InvalidSpecError: ``port`` is not a port, or is the agent's, or ``expires_in_s`` is not between a
                second and a year.
            StateError: No server runs for this home, or the sandbox belongs to no team, so that none serves it.
        """
        check_link(port, expires_in_s)
        place = self._api.place
        if isinstance(place, There):
            wish = LinkRequest(port=port, expires_in_s=expires_in_s)
            return self._api.call("POST", f"/v1/sandboxes/{self._sandbox_id}/links", str, wish)
        info = self._info()
        if info.team is None:
            raise StateError(
                "the sandbox belongs to no team, so no server leads to it",
                hint="create it with `--team default`, or use `atoll port`",
                sandbox_id=self._sandbox_id,
            )
        return in_thread(url_of, place.home, self._sandbox_id, port, expires_in_s)
