"""The dial socket: clients name a port of a sandbox and get a connected socket."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import (
    AgentError,
    AtollError,
    DeadlineError,
    NotFoundError,
    UnresponsiveError,
)
from atoll.network import SHORTAGES
from atoll.protocol import (
    AGENT_PORT,
    DIAL_LIMIT_BYTES,
    DialAnswer,
    DialRequest,
    check_shortage,
    decode_request,
    encode,
    error_body,
)
from atoll.remedies import UNRESPONSIVE_HINT
from atoll.supervisor.dialing.loopback import dial_loopback
from atoll.supervisor.lifecycle.holds import is_left
from atoll.supervisor.lifecycle.turns import Turns
from atoll.supervisor.lifecycle.wake import Wakes
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.running_machine import RunningMachine
from atoll.supervisor.state.sandbox import Sandbox
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.state.transitions import check_action, check_plugged

_CLIENTS_AT_ONCE = 128
_DIAL_TIMEOUT_S = 10.0
# For a guest that answers nothing anyway.
_UNRESPONSIVE_S = 1.0
_TRIES = 5
# A caller waits at most this long behind another whose port does not answer.
_PATIENCE_S = 0.25
_log = logging.getLogger(__name__)


_Port = tuple[RunningMachine, int]
_InTurn = Callable[[_Port, bool], contextlib.AbstractAsyncContextManager[None]]


@dataclass(eq=False, repr=False)
class _Queue:
    """The callers that connect to a port of a machine, in the order of their arrival."""

    turns: Turns = field(default_factory=lambda: Turns(at_once=1, patience_s=_PATIENCE_S), init=False)
    length: int = field(default=0, init=False)


@dataclass(eq=False, repr=False)
class Dialling:
    """Connects to sandboxes, and wakes them first. Waiting callers connect in the order of their arrival.

    Args:
        used: Called with each sandbox that a client uses.
    """

    inventory: Inventory
    wakes: Wakes
    tasks: Tasks
    used: Callable[[Sandbox], None]
    _queues: dict[_Port, _Queue] = field(default_factory=dict, init=False)

    async def dial(self, request: DialRequest) -> tuple[DialAnswer, socket.socket]:
        """A connected socket for the caller, and the answer to send with it.

        Raises:
            SandboxNotFoundError: There is no such sandbox.
            SandboxCrashedError: The sandbox crashed meanwhile.
            AsleepError: The sandbox sleeps, and use does not wake it.
            UnpluggedError: The sandbox is unplugged.
            NotFoundError: No program listens on that port.
            DeadlineError: The guest did not answer in time.
        """
        sandbox = self.inventory.sandbox(request.sandbox)
        before = sandbox.row.recovered
        connection = await self._reach(sandbox, request.port, self._in_order, request.within_s)
        now = sandbox.row.recovered
        recovered = sandbox.untold if now == before else now
        sandbox.untold = None
        return DialAnswer(sandbox_id=sandbox.sandbox_id, recovered=recovered), connection

    async def dial_for_guest(self, sandbox: Sandbox, port: int) -> socket.socket:
        """A socket for another guest. Keeps no client waiting, and leaves news of a recovery to clients.

        Raises the errors of ``dial``.
        """
        before = sandbox.row.recovered
        connection = await self._reach(sandbox, port, _at_once, None)
        if sandbox.row.recovered != before:
            sandbox.untold = sandbox.row.recovered
        return connection

    async def _reach(
        self, sandbox: Sandbox, port: int, in_turn: _InTurn, within_s: float | None
    ) -> socket.socket:
        """Wake a sandbox, and connect to it. ``within_s`` bounds only the connecting."""
        self.used(sandbox)
        for _ in range(_TRIES):
            check_action("dial", sandbox.row.state, sandbox.sandbox_id)
            check_plugged("use", sandbox)
            self.wakes.check(sandbox)
            running = sandbox.running
            waits = running is None or not _usable(sandbox, running)
            if running is None or waits:
                running = await self.tasks.run(self.wakes.use(sandbox))
            elif is_left(sandbox):
                await self.tasks.run(self.wakes.keep(sandbox))
            try:
                async with in_turn((running, port), waits):
                    connection = await self._connect(sandbox, running, port, _bound_s(running, within_s))
            except AtollError:
                if _crashed(sandbox, running):
                    raise running.lost(sandbox.sandbox_id) from None
                if _usable(sandbox, running):
                    raise
                continue  # the sandbox has just been put to sleep, which also ends unfinished connections
            if _usable(sandbox, running):
                self.used(sandbox)  # the wake may have taken longer than the allowed idle time
                sandbox.dialled = True
                return connection
            # The sandbox has just been put to sleep, which ended this connection.
            connection.close()
        raise DeadlineError(
            f"sandbox {sandbox.row.called} was suspended again and again",
            hint="another client pauses or suspends it",
            sandbox_id=sandbox.sandbox_id,
        )

    @contextlib.asynccontextmanager
    async def _in_order(self, port: _Port, waits: bool) -> AsyncIterator[None]:
        """Queue a caller that waited, or that finds others in the queue. Any other goes straight on."""
        if not waits and port not in self._queues:
            yield
            return
        queue = self._queues.setdefault(port, _Queue())
        queue.length += 1
        try:
            async with queue.turns.turn():
                yield
        finally:
            queue.length -= 1
            if not queue.length:
                del self._queues[port]

    async def _connect(
        self, sandbox: Sandbox, running: RunningMachine, port: int, timeout_s: float
    ) -> socket.socket:
        try:
            dialled = self._dialled(sandbox, running, port, timeout_s)
            connection = await running.alive(dialled, sandbox.sandbox_id)
            if connection is not None:
                return connection
            raise NotFoundError(
                f"nothing listens on port {port} of sandbox {sandbox.row.called}",
                hint="start the server in the sandbox first",
                sandbox_id=sandbox.sandbox_id,
            )
        except OSError as error:
            if isinstance(error, AtollError):
                raise
            check_shortage(error)
            silent = running.unresponsive_since is not None
            raise (UnresponsiveError if silent else DeadlineError)(
                f"sandbox {sandbox.row.called} did not answer on port {port}: {error}",
                hint=UNRESPONSIVE_HINT if silent else "it may be overloaded; try again",
                sandbox_id=sandbox.sandbox_id,
            ) from None

    async def _dialled(
        self, sandbox: Sandbox, running: RunningMachine, port: int, timeout_s: float
    ) -> socket.socket | None:
        try:
            return await running.link.dial(port, timeout_s)
        except ConnectionRefusedError:
            if port == AGENT_PORT:
                await self._assert_agent(sandbox, running)
                return None
        try:
            return await dial_loopback(running.link, port, timeout_s)
        except ConnectionRefusedError:
            await self._assert_agent(sandbox, running)
            return None

    async def _assert_agent(self, sandbox: Sandbox, running: RunningMachine) -> None:
        """Report the meaning of a missing agent: the agent is process 1, so the guest is about to end."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(running.gone.wait(), _DIAL_TIMEOUT_S)
            raise running.lost(sandbox.sandbox_id)
        raise AgentError(
            f"the agent of sandbox {sandbox.row.called} does not listen",
            hint="kill the sandbox, or roll it back",
            sandbox_id=sandbox.sandbox_id,
        )


def _bound_s(running: RunningMachine, within_s: float | None) -> float:
    most_s = _DIAL_TIMEOUT_S if running.unresponsive_since is None else _UNRESPONSIVE_S
    return most_s if within_s is None else min(most_s, within_s)


def _at_once(_: _Port, __: bool) -> contextlib.AbstractAsyncContextManager[None]:
    return contextlib.nullcontext()


def _usable(sandbox: Sandbox, running: RunningMachine) -> bool:
    return (
        sandbox.running is running
        and sandbox.row.state == "running"
        and sandbox.unplugged is None
        and not sandbox.lock.locked()
        and not running.leaving
        and not running.gone.is_set()
    )


def _crashed(sandbox: Sandbox, running: RunningMachine) -> bool:
    return sandbox.row.state == "crashed" or (running.gone.is_set() and not running.leaving)


@dataclass(eq=False, repr=False)
class DialSocket:
    """Listens for clients of the dial socket.

    Args:
        path: The socket to listen on, accessible only to this user.
    """

    path: Path
    dialling: Dialling
    _clients: set[asyncio.Task[None]] = field(default_factory=set, init=False)
    _listener: socket.socket | None = field(default=None, init=False)
    _accepting: asyncio.Task[None] | None = field(default=None, init=False)

    @property
    def clients(self) -> int:
        """How many clients are connected."""
        return len(self._clients)

    def start(self) -> None:
        """Start to listen. A socket that a dead supervisor left is replaced."""
        self._listener = listen(self.path, socket.SOCK_SEQPACKET)
        self._accepting = asyncio.create_task(self._accept(self._listener))

    async def aclose(self) -> None:
        """Stop listening, and disconnect all clients."""
        tasks = [*self._clients, *([self._accepting] if self._accepting else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._listener is not None:
            self._listener.close()
        self.path.unlink(missing_ok=True)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client, _ = await loop.sock_accept(listener)
            except OSError as error:
                if error.errno not in (*SHORTAGES, errno.ECONNABORTED):
                    raise
                _log.warning("cannot accept a client: %s", error)
                await asyncio.sleep(0.1)
                continue
            task = asyncio.create_task(self._serve(client))
            self._clients.add(task)
            task.add_done_callback(self._clients.discard)

    async def _serve(self, client: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with client, contextlib.suppress(ConnectionError):  # the client left
            while packet := await loop.sock_recv(client, DIAL_LIMIT_BYTES):
                await self._answer(client, packet)

    async def _answer(self, client: socket.socket, packet: bytes) -> None:
        loop = asyncio.get_running_loop()
        try:
            answer, connection = await self.dialling.dial(decode_request(packet))
        except Exception as error:  # the client must hear of every error
            if not isinstance(error, AtollError):
                _log.exception("a dial failed")
            await loop.sock_sendall(client, encode(DialAnswer(error=error_body(error))))
            return
        with connection:
            socket.send_fds(client, [encode(answer)], [connection.fileno()])


def listen(path: Path, kind: socket.SocketKind) -> socket.socket:
    """A non-blocking listener on a unix socket that only this user can reach."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, kind)
    mask = os.umask(0o177)
    try:
        listener.bind(str(path))
    finally:
        os.umask(mask)
    listener.listen(_CLIENTS_AT_ONCE)
    listener.setblocking(False)
    return listener
