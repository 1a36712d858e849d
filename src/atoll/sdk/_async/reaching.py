"""The ports of a sandbox, reached from this host."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, overload

from atoll.errors import DeadlineError, InvalidSpecError, NotFoundError, SandboxNotFoundError, StateError
from atoll.protocol import LinkRequest, check_link
from atoll.sdk._async.mcp import AsyncMcpAddress
from atoll.sdk._async.places import AsyncThere
from atoll.sdk._async.ports import AsyncForward
from atoll.sdk._async.programs import Command, OutputCallback
from atoll.sdk._async.sessions import AsyncSessions
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._io_async import in_thread, mcp_streams, sleep, user_socket
from atoll.sdk._links import url_of
from atoll.types import GuestPath, check_number

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from atoll.sdk._mcp_streams import Streams

_FIRST_LOOK_S = 0.02
_LONGEST_LOOK_S = 0.5


class AsyncReaching(AsyncSessions):
    """Gives a sandbox its methods for what listens inside."""

    async def dial(self, port: int) -> socket.socket:
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
        return user_socket(await self._link.dial(self.id, port))

    async def wait_for_port(self, port: int, *, timeout_s: float | None = 60.0) -> None:
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
                (await self.dial(port)).close()
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
                    sandbox_id=self.id,
                ) from None
            await sleep(pause_s if left_s is None else min(pause_s, left_s))
            pause_s = min(2 * pause_s, _LONGEST_LOOK_S)

    def forward(self, port: int, local_port: int = 0) -> AsyncForward:
        """Forward a port of 127.0.0.1 to a port inside.

        Returns a context: ``port`` is the local port, and ``url`` its http address.

        Args:
            port: The port in the sandbox.
            local_port: The port on this host; 0 picks a free one.

        Raises:
            InvalidSpecError: One of the two is not a port number.
        """
        return AsyncForward(self._link, self.id, port, local_port)

    async def url(self, port: int, *, expires_in_s: float | None = None) -> str:
        """Return the address at which a browser reaches a port inside, through the running ``atoll serve``.

        Args:
            port: The port in the sandbox.
            expires_in_s: Sign the address: it then opens the port to whoever has it, for so many seconds,
                also if its ports are closed. None signs nothing.

        Raises:
            InvalidSpecError: ``port`` is not a port, or is the agent's, or ``expires_in_s`` is not between a
                second and a year.
            StateError: No server runs for this home, or the sandbox belongs to no team, so that none serves it.
        """
        check_link(port, expires_in_s)
        place = self._link.place
        if isinstance(place, AsyncThere):
            wish = LinkRequest(port=port, expires_in_s=expires_in_s)
            return await self._link.call("POST", f"/v1/sandboxes/{self.id}/links", str, wish)
        info = await self.info()
        if info.team is None:
            raise StateError(
                "the sandbox belongs to no team, so no server leads to it",
                hint="create it with `--team default`, or use `atoll port`",
                sandbox_id=self.id,
            )
        return await in_thread(url_of, place.home, self.id, port, expires_in_s)

    @overload
    def mcp(self, *, port: int, path: str = "/mcp") -> AsyncMcpAddress: ...
    @overload
    def mcp(
        self,
        *,
        command: Command,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> AbstractAsyncContextManager[Streams]: ...
    def mcp(
        self,
        *,
        port: int | None = None,
        path: str = "/mcp",
        command: Command | None = None,
        cwd: GuestPath | None = None,
        env: Mapping[str, str] | None = None,
        user: str | None = None,
        on_stderr: OutputCallback | None = None,
    ) -> AsyncMcpAddress | AbstractAsyncContextManager[Streams]:
        """Reach a server of the Model Context Protocol that runs inside. Either way it returns a context.

        With ``port`` the context has a ``url`` for streamable HTTP: the port's address at an ``atoll
        serve`` with a domain, as of ``url``, or else a forwarded port of 127.0.0.1.

        With ``command`` a stdio server is started, and the context gives the read and the write stream that
        ``ClientSession`` of the package ``mcp`` takes. Leaving it ends the server. This is for
        ``AsyncSandbox`` alone.

        Args:
            port: The port that the server inside listens on.
            path: The path of its address.
            command: The server: a shell line (str), or a program and its arguments (a list).
            cwd: Directory in the sandbox; None means the user's own directory.
            env: Variables on top of the sandbox's.
            user: Name of a user in the sandbox; None means the default user.
            on_stderr: Called with each piece of text that the server writes to standard error.

        Raises:
            InvalidSpecError: Neither ``port`` nor ``command`` is given, or both, or one is invalid.
            UnsupportedError: The package ``mcp`` is not installed, or a sync ``Sandbox`` is given a command.
            FileMissingError: The program or ``cwd`` is not in the sandbox.
        """
        if command is not None and port is None:
            start = partial(self.start, command, cwd=cwd, env=env, user=user, stdin=True, stream=True)
            return mcp_streams(start, on_stderr)
        if port is None or command is not None:
            raise InvalidSpecError("mcp takes one of port and command", hint="give either of them")

        async def served() -> str:
            # a client of the protocol has no token for a port that is closed at the server
            if (await self.info()).ports == "closed":
                raise StateError("the ports of the sandbox are closed", sandbox_id=self.id)
            return await self.url(port)

        return AsyncMcpAddress(self.forward(port), served, path)
