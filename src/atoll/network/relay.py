"""Accepts the guest's TCP connections in the edge and connects them from the host."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from atoll.network.acceptor import Acceptor
from atoll.network.decide import Refusal
from atoll.network.flows import Flow
from atoll.network.pace import Pace
from atoll.network.room import Room
from atoll.network.splice import Splice, tune
from atoll.types import EgressPolicy

Decide = Callable[[EgressPolicy, str, int], Refusal | None]

MAX_CONNECTIONS = 1024
CONNECT_TIMEOUT_S = 10.0
# From this number on, guests are asked about connections that perhaps only the server still has.
ASK_FROM = 128
_ASK_S = 5.0
# A browser opens a few hundred at once. A guest that opens this many all the time would delay other guests in
# this process.
CONNECTIONS_PER_S = 250
CONNECTIONS_AT_ONCE = 512

_SO_ORIGINAL_DST = 80


class Relay:
    """The relay of one sandbox. A connection's listener tells which sandbox it is from.

    It never ends a connection by itself, because a guest may be suspended for days. A connection that it
    gives up is reset.

    Args:
        listener: The socket in the edge that gets all TCP of the guest; the relay owns it from now on.
        decide: Judges each connection by policy and original destination.
    """

    def __init__(self, listener: socket.socket, decide: Decide) -> None:
        self._decide = decide
        self._policy: EgressPolicy = "internet"
        self._splices: dict[Splice, Flow] = {}
        self._connecting: dict[asyncio.Task[socket.socket], Flow] = {}
        self._held = False
        self._refused: list[socket.socket] = []
        self._asking: asyncio.TimerHandle | None = None
        self._room = Room()
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listener, self._take, Pace(CONNECTIONS_PER_S, CONNECTIONS_AT_ONCE))

    @property
    def policy(self) -> EgressPolicy:
        """What the sandbox may reach."""
        return self._policy

    @policy.setter
    def policy(self, policy: EgressPolicy) -> None:
        self._policy = policy
        if policy == "none" and not self._held:
            self.reset()

    def flows(self) -> list[Flow]:
        """Return the connections that are open now."""
        return [*self._splices.values(), *self._connecting.values()]

    def hold(self) -> None:
        """Pass no bytes until ``release``; connections stay open."""
        self._held = True
        for splice in self._splices:
            splice.hold()

    def release(self) -> None:
        """Undo ``hold``."""
        self._held = False
        if self._policy == "none":
            # Not when the policy was set: a sleeping guest does not receive a reset.
            return self.reset()
        self._close_refused()
        for splice in self._splices:
            splice.start()
        return None

    def reset(self) -> None:
        """Reset every connection, at both ends."""
        self._close_refused()
        for task in self._connecting:
            task.cancel()
        self._connecting.clear()
        for splice in list(self._splices):
            splice.reset()

    async def aclose(self) -> None:
        """Reset every connection and accept no new ones."""
        self._acceptor.close()
        if self._asking:
            self._asking.cancel()
        connecting = list(self._connecting)
        self.reset()
        await asyncio.gather(*connecting, return_exceptions=True)
        self._close_refused()

    def _take(self, guest: socket.socket, peer: tuple[str, int]) -> None:
        if len(self._splices) >= ASK_FROM and not self._asking:
            self._ask(wanted=True)
            self._asking = self._loop.call_later(_ASK_S, self._ask_no_more)
        try:
            tune(guest)
            flow = Flow(peer[1], *_original_destination(guest))
            refusal = self._decide(self._policy, flow.address, flow.port)
        except OSError:
            return self._refuse(guest)
        if refusal or len(self._splices) + len(self._connecting) >= MAX_CONNECTIONS:
            return self._refuse(guest)
        task = self._loop.create_task(self._connect(flow))
        self._connecting[task] = flow
        # Not in the task itself: a task that is cancelled early never runs, and the guest's end would stay
        # open.
        task.add_done_callback(lambda connected: self._on_connected(guest, connected))
        return None

    async def _connect(self, flow: Flow) -> socket.socket:
        remote = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            tune(remote)
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                await self._loop.sock_connect(remote, (flow.address, flow.port))
        except BaseException:
            remote.close()
            raise
        return remote

    def _on_connected(self, guest: socket.socket, task: asyncio.Task[socket.socket]) -> None:
        flow = self._connecting.pop(task, None)
        if task.cancelled() or task.exception():
            return self._refuse(guest)
        remote = task.result()
        if flow is None:
            remote.close()
            return guest.close()
        splice = Splice(guest, remote, self._room, lambda: self._forget(splice))
        self._splices[splice] = flow
        if not self._held:
            splice.start()
        return None

    def _ask_no_more(self) -> None:
        # A later question would be taken for traffic for which a paused guest must wake.
        self._asking = None
        self._ask(wanted=False)

    def _ask(self, *, wanted: bool) -> None:
        for splice in list(self._splices):
            splice.ask(wanted)

    def _refuse(self, guest: socket.socket) -> None:
        if self._held:
            # A reset is sent once. A sleeping guest would miss it, and then wait for ever after it wakes.
            self._refused.append(guest)
        else:
            guest.close()

    def _close_refused(self) -> None:
        for guest in self._refused:
            guest.close()
        self._refused.clear()

    def _forget(self, splice: Splice) -> None:
        self._splices.pop(splice, None)


def _original_destination(guest: socket.socket) -> tuple[str, int]:
    data = guest.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    port, address = struct.unpack_from(">2xH4s", data)
    return socket.inet_ntoa(address), port
