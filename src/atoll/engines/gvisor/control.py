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

from atoll.engines.gvisor.machine_paths import open_directory
from atoll.engines.gvisor.waits import ANSWER_S, CALL_S, LOOK_S
from atoll.errors import EngineError, UnresponsiveError
from atoll.protocol import check_shortage
from atoll.remedies import UNRESPONSIVE_HINT
from atoll.types.internal import from_json

ANSWER_LIMIT_BYTES = 4 << 20
# No method of that name: the refusal is an answer.
_PING = b'{"method":"containerManager.Ping"}'


class RefusedCallError(EngineError):
    """The sentry answered that it refuses the call."""


class PendingCallError(UnresponsiveError):
    """The sentry answers, but still works on this call."""


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
        self, method: str, arg: object = None, *, fds: Sequence[int] = (), timeout_s: float = CALL_S
    ) -> Any:
        """Call ``method`` and return its result. The sentry gets copies of ``fds``, which stay open here.

        Raises:
            EngineError: The sentry is gone.
            PendingCallError: It did not answer this call in time.
            UnresponsiveError: It answers nothing at all.
            RefusedCallError: The sentry refused.
        """
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._answered(msgspec.json.encode({"method": method, "arg": arg}), fds)
        except UnresponsiveError:
            raise
        except TimeoutError:
            raise _unresponsive(PendingCallError, method, timeout_s) from None
        except (OSError, EOFError, ValueError, RecursionError) as error:
            check_shortage(error)
            raise EngineError(f"{method} failed, because the sentry does not answer: {error}") from error
        if not answer.success:
            raise RefusedCallError(f"{method} failed: {answer.err}")
        return answer.result

    async def _answered(self, request: bytes, fds: Sequence[int]) -> _Answer:
        """Wait for the answer to a call as long as the sentry answers on other connections."""
        asked = asyncio.ensure_future(self._exchange(request, fds))
        try:
            while not (await asyncio.wait({asked}, timeout=LOOK_S))[0]:
                await self._assert_answers(asked)
            return asked.result()
        finally:
            asked.cancel()

    async def _assert_answers(self, asked: asyncio.Future[_Answer]) -> None:
        ping = asyncio.ensure_future(self._exchange(_PING, ()))
        try:
            done, _ = await asyncio.wait({asked, ping}, timeout=ANSWER_S, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                raise _unresponsive(UnresponsiveError, "a ping", ANSWER_S)
        finally:
            ping.cancel()
            await asyncio.gather(ping, return_exceptions=True)

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


def _unresponsive(kind: type[UnresponsiveError], method: str, waited_s: float) -> UnresponsiveError:
    return kind(f"the guest's kernel did not answer {method} within {waited_s:g} s", hint=UNRESPONSIVE_HINT)
