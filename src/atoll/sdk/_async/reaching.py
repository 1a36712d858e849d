"""The programs and ports of a sandbox, and the servers of the Model Context Protocol that are among them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, overload

from atoll.errors import InvalidSpecError, StateError
from atoll.sdk._async.api import AsyncApi
from atoll.sdk._async.mcp import AsyncMcpAddress
from atoll.sdk._async.ports import AsyncPorts
from atoll.sdk._async.processes import AsyncProcesses
from atoll.sdk._async.programs import Command, OutputCallback
from atoll.sdk._async.states import AsyncStates
from atoll.sdk._io_async import mcp_streams
from atoll.types import GuestPath, SandboxInfo

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from atoll.sdk._mcp_streams import Streams


class AsyncReaching(AsyncStates):
    """Gives a sandbox its programs and ports."""

    def __init__(self, api: AsyncApi, info: SandboxInfo) -> None:
        super().__init__(api, info)
        self.processes: AsyncProcesses = AsyncProcesses(self._agent)
        self.ports: AsyncPorts = AsyncPorts(api, self.id, self.info)

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

        With ``port`` the context has a ``url`` for streamable HTTP: the port's address at an ``atoll serve``
        with a domain, as from ``ports.url``, or else a forwarded port of 127.0.0.1.

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
            start = partial(
                self.processes.start, command, cwd=cwd, env=env, user=user, stdin=True, stream=True
            )
            return mcp_streams(start, on_stderr)
        if port is None or command is not None:
            raise InvalidSpecError("mcp takes one of port and command", hint="give either of them")

        async def served() -> str:
            # a client of the protocol has no token for a port that is closed at the server
            if (await self.info()).ports == "closed":
                raise StateError("the ports of the sandbox are closed", sandbox_id=self.id)
            return await self.ports.url(port)

        return AsyncMcpAddress(self.ports.forward(port), served, path)
