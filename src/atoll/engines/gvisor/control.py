"""The sentry's control socket.

Each connection has one JSON request and one JSON answer; descriptors are sent as SCM_RIGHTS. The protocol is
internal to gVisor, so this module works with the pinned version only. The conformance tests fail if it
changes.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from atoll.engines.gvisor.places import open_directory
from atoll.errors import EngineError
from atoll.types import from_json

ANSWER_LIMIT_BYTES = 4 << 20


class RefusedCallError(EngineError):
    """The sentry answered that it refuses the call."""


class UnknownCallError(RefusedCallError):
    """The sentry does not know the call: it is of an older engine."""


class _Answer(msgspec.Struct):
    success: bool
    err: str = ""
    result: Any = None


class ControlSocket:
    """Calls methods of one sentry.

    Args:
        path: The socket's path, of any length.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    async def call(
        self, method: str, arg: object = None, *, fds: Sequence[int] = (), timeout_s: float | None = 60.0
    ) -> Any:
        """Call ``method`` and return its result. The sentry gets copies of ``fds``, which stay open here.

        Raises:
            EngineError: The sentry is gone or did not answer in time.
            RefusedCallError: The sentry refused.
            UnknownCallError: It does not know the method.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._exchange(msgspec.json.encode({"method": method, "arg": arg}), fds)
        except TimeoutError:
            raise EngineError(f"{method} got no answer from the sentry within {timeout_s} s") from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            raise EngineError(f"{method} failed, because the sentry does not answer: {error}") from error
        if not answer.success:
            # The text is that of ErrUnknownMethod in gVisor's pkg/urpc.
            kind = UnknownCallError if answer.err == "unknown method" else RefusedCallError
            raise kind(f"{method} failed: {answer.err}")
        return answer.result

    async def _exchange(self, request: bytes, fds: Sequence[int]) -> _Answer:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as connection:
            # A socket's address may have at most 107 bytes, and the path of a home may be longer.
            with open_directory(self.path.parent) as directory:
                await loop.sock_connect(connection, f"/proc/self/fd/{directory}/{self.path.name}")
            sent = socket.send_fds(connection, [request], list(fds))
            if sent < len(request):
                await loop.sock_sendall(connection, request[sent:])
            return await self._receive(connection)

    async def _receive(self, connection: socket.socket) -> _Answer:
        loop = asyncio.get_running_loop()
        received = bytearray()
        while len(received) < ANSWER_LIMIT_BYTES:
            part = await loop.sock_recv(connection, 65536)
            if not part:
                raise EOFError("it closed the connection")
            received += part
            try:
                return from_json(received, _Answer)
            except msgspec.ValidationError:
                raise
            except ValueError:
                continue
        raise EOFError(f"its answer has more than {ANSWER_LIMIT_BYTES} bytes")
