"""The supervisor's calls to guest agents.

A guest can answer anything, so each call has a time and size limit.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from atoll import guest
from atoll.errors import AgentError, AtollError, DeadlineError
from atoll.guest import (
    AgentStats,
    Body,
    Freed,
    GuestInit,
    GuestRequest,
    HttpClient,
    LastWords,
    Program,
    ServiceStatus,
)
from atoll.protocol import AGENT_PORT, check_shortage
from atoll.types import ServiceSpec

_ANSWER_LIMIT_BYTES = 1 << 20
# With this size, an answer in tiny parts blocks the event loop for a few milliseconds at most.
_RECEIVE_BYTES = 8192
# The time an agent may take for new host keys and for hooks after a restore (agent/hooks), beyond other
# calls.
_RESTORED_S = 25.0
# The time a guest may take to write out its caches.
_FLUSH_S = 30.0
# How long a suspend waits for an agent that does not answer.
_LAST_WORDS_S = 3.0
# The time for hooks before a suspend, which the agent bounds to 10 s.
_HOOKS_S = 12.0
# The time for an agent's sign of life.
_ANSWER_S = 3.0
_RETRY_FIRST_S = 0.001
_RETRY_MOST_S = 0.02


class Dials(Protocol):
    """The part of a link that an agent's client needs."""

    async def dial(self, port: int, timeout_s: float) -> socket.socket:
        """Return a connected, non-blocking socket to the guest's ``port``."""


class _Answer(NamedTuple):
    """An answer, and how many bytes it took with its request on the wire."""

    status: int
    body: bytes
    moved_bytes: int


@dataclass(eq=False, repr=False)
class Agents:
    """Calls guest agents over HTTP, with one connection for each call.

    Args:
        timeout_s: Time limit of each call.
    """

    timeout_s: float

    async def ready(self, link: Dials) -> None:
        """Return when the agent answers.

        Raises:
            DeadlineError: The agent did not answer in time.
        """
        await self._until_answered(link, guest.health(), self.timeout_s)

    async def answers(self, link: Dials) -> int:
        """Ask the agent once for a sign of life. Returns the bytes of the exchange.

        Raises:
            AgentError: Its answer is invalid.
            DeadlineError: It did not answer in time.
            OSError: It cannot be reached.
        """
        request = guest.health()
        async with _bounded(request.target, _ANSWER_S):
            return (await self._exchange(link, request, head_only=True)).moved_bytes

    async def first(self, link: Dials, wanted: GuestInit) -> None:
        """Do the work of ``init`` for an agent that may still be starting, or may run hooks after a restore.

        Raises:
            AgentError: The agent refused.
            DeadlineError: The agent did not answer in time.
        """
        await self._until_answered(link, guest.init(wanted), self.timeout_s + _RESTORED_S)

    async def init(self, link: Dials, wanted: GuestInit) -> None:
        """Apply ``wanted`` to the guest.

        Raises:
            AgentError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        await self._call(link, guest.init(wanted))

    async def warm(self, link: Dials, user: str) -> None:
        """Have the agent read the environment of this user's login shell now.

        Raises:
            AgentError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        await self._call(link, guest.warm(user))

    async def start(self, link: Dials, program: Program) -> None:
        """Start a program, whose output the agent keeps, and do not wait for it.

        Raises:
            AtollError: The program cannot be started.
            DeadlineError: The agent did not answer in time.
        """
        await self._call(link, guest.start_process(program), head_only=True)

    async def ends_well(self, link: Dials, program: Program) -> bool:
        """Run a program, and return whether it ended with exit code 0.

        Raises:
            AtollError: The program cannot be started, or the agent's answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        frames = guest.FrameReader().feed(await self._call(link, guest.start_process(program)))
        ends = [guest.end_from(frame.payload) for frame in frames if frame.kind == "x"]
        return bool(ends) and not ends[-1].exit_code

    async def flush(self, link: Dials) -> None:
        """Have the guest write out to the host all that its programs have written.

        Raises:
            AgentError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        request = guest.flush()
        async with _bounded(request.target, _FLUSH_S):
            _accepted(await self._exchange(link, request))

    async def free_memory(self, link: Dials, within_s: float) -> Freed:
        """Have the agent kill the biggest program, because the host runs short of memory.

        Raises:
            UnsupportedError: The agent comes from an older atoll.
            AgentError: It cannot be reached, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        request = guest.free_memory()
        async with _bounded(request.target, within_s):
            return guest.freed_from(await self._call(link, request))

    async def before_suspend(self, link: Dials, *, hooks: bool = False) -> tuple[LastWords, int]:
        """Announce a suspend. Returns the agent's answer, and the bytes of the exchange.

        With ``hooks``, the guest's hooks run first.

        Raises:
            UnsupportedError: The agent comes from an older atoll.
            AgentError: The agent's answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        request = guest.before_suspend(hooks=hooks)
        async with _bounded(request.target, _HOOKS_S if hooks else _LAST_WORDS_S):
            answer = await self._exchange(link, request)
        return guest.last_words_from(_accepted(answer)), answer.moved_bytes

    async def stats(self, link: Dials) -> AgentStats:
        """Ask the agent for its counts of the guest's processes.

        Raises:
            AgentError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        return guest.stats_from(await self._call(link, guest.stats()))

    async def services(self, link: Dials) -> dict[str, ServiceStatus]:
        """Ask the agent how the services are.

        Raises:
            UnsupportedError: The agent comes from an older atoll.
            AgentError: The agent's answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        return guest.statuses_from(await self._call(link, guest.list_services()))

    async def put_service(self, link: Dials, spec: ServiceSpec) -> dict[str, ServiceStatus]:
        """Define and start a service, and return the status of all services.

        Raises:
            AtollError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        return guest.statuses_from(await self._call(link, guest.put_service(spec)))

    async def start_service(self, link: Dials, name: str) -> None:
        """Start a service that does not run.

        Raises:
            AtollError: There is none, or the agent's answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        await self._call(link, guest.move_service(name, "start"))

    async def remove_service(self, link: Dials, name: str) -> None:
        """Stop a service and forget it.

        Raises:
            AtollError: The agent refused, or its answer is invalid.
            DeadlineError: The agent did not answer in time.
        """
        await self._call(link, guest.remove_service(name))

    async def _until_answered(self, link: Dials, request: GuestRequest, timeout_s: float) -> None:
        wait_s = _RETRY_FIRST_S
        async with _bounded(request.target, timeout_s):
            while True:
                with contextlib.suppress(OSError, AgentError):  # the agent is still starting
                    answer = await self._exchange(link, request)
                    break
                await asyncio.sleep(wait_s)
                wait_s = min(wait_s * 1.5, _RETRY_MOST_S)
        _accepted(answer)

    async def _call(self, link: Dials, request: GuestRequest, *, head_only: bool = False) -> bytes:
        async with _bounded(request.target, self.timeout_s):
            try:
                return _accepted(await self._exchange(link, request, head_only))
            except OSError as error:
                if isinstance(error, AtollError):
                    raise
                check_shortage(error)
                raise AgentError(f"the guest agent cannot be reached: {error}") from None

    async def _exchange(self, link: Dials, request: GuestRequest, head_only: bool = False) -> _Answer:
        connection = await link.dial(AGENT_PORT, self.timeout_s)
        with connection:
            return await _exchange(connection, request, head_only)


@contextlib.asynccontextmanager
async def _bounded(what: str, timeout_s: float) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except TimeoutError as error:
        if isinstance(error, AtollError):
            raise
        raise DeadlineError(
            f"the guest agent did not answer {what} within {timeout_s:g} s",
            hint="the sandbox may be overloaded; try again, or kill it",
        ) from None


async def _exchange(connection: socket.socket, request: GuestRequest, head_only: bool) -> _Answer:
    loop = asyncio.get_running_loop()
    http = HttpClient()
    asked = http.request(request)
    await loop.sock_sendall(connection, asked)
    status, answer, moved_bytes = 0, bytearray(), len(asked)
    while True:
        event = http.next_event()
        if event is None:
            # A ready socket does not wait: a guest that floods it would keep the event loop to itself.
            await asyncio.sleep(0)
            received = await loop.sock_recv(connection, _RECEIVE_BYTES)
            moved_bytes += len(received)
            http.receive(received)
        elif isinstance(event, Body):
            if not event.data:
                break
            answer += event.data
            if len(answer) > _ANSWER_LIMIT_BYTES:
                raise AgentError("the guest agent's answer is over 1 MiB")
        else:
            status = event.status
            if head_only and status < 400:
                break
    return _Answer(status, bytes(answer), moved_bytes)


def _accepted(answer: _Answer) -> bytes:
    if answer.status >= 400:
        raise guest.error_from(answer.status, answer.body)
    return answer.body
