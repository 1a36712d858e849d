"""Accepts the guest's TCP connections in the outer namespace and connects them from the host."""

from __future__ import annotations

import asyncio
import itertools
import socket
import struct
from collections.abc import Collection, Coroutine
from typing import Protocol

from atoll.network.acceptor import Acceptor
from atoll.network.connection import Connection, Kept, connect
from atoll.network.data_watch import DataWatch
from atoll.network.egress import Egress
from atoll.network.flows import Flow
from atoll.network.gate import Gate, Passage
from atoll.network.pace import Pace
from atoll.network.room import Room
from atoll.network.splice import Splice, tune
from atoll.policy import Verdict

MAX_CONNECTIONS = 1024
# From this number on, guests are asked about connections that perhaps only the server still has.
ASK_FROM = 128
_ASK_S = 5.0
# A browser opens a few hundred at once. A guest that opens this many all the time would delay other guests in
# this process.
CONNECTIONS_PER_S = 250
CONNECTIONS_AT_ONCE = 512

_SO_ORIGINAL_DST = 80
# The edge tells the connections of all sandboxes apart by these.
_numbers = itertools.count(1)


class Inspector(Protocol):
    """Judges the requests of connections."""

    async def take(self, connection: Connection) -> socket.socket:
        """Return the end of a connection to the inspector, which decides what of it goes on.

        Raises:
            OSError: It takes none; the connection must not go on.
        """

    def judge_by(self, connection: Connection) -> None:
        """Judge the further requests of a connection by the rules that it keeps now."""


class Relay:
    """The relay of one sandbox. A connection's listener tells which sandbox it is from.

    It never ends a connection by itself, because a guest may be suspended for days. A connection that it
    gives up is reset. ``data_watch`` notices what comes on connections that are held.

    Args:
        listener: The socket in the outer namespace that gets all TCP of the guest; the relay owns it from now on.
        egress: Decides about each connection.
    """

    def __init__(self, listener: socket.socket, egress: Egress) -> None:
        self.inspector: Inspector | None = None
        self._egress = egress
        self._splices: dict[Splice, Connection] = {}
        self.data_watch = DataWatch(self._splices, self._may_live)
        self._connecting: dict[asyncio.Task[Splice], Connection] = {}
        self._held = self._probing = False
        self._refused: dict[socket.socket, Flow | None] = {}
        self._asking: asyncio.TimerHandle | None = None
        self._room = Room()
        self._loop = asyncio.get_running_loop()
        self._acceptor = Acceptor(listener, self._take, Pace(CONNECTIONS_PER_S, CONNECTIONS_AT_ONCE))

    def flows(self) -> list[Flow]:
        """Return the connections that are open now."""
        return [connection.flow for connection in self._connections()]

    def kept(self, known: Collection[Flow]) -> int | None:
        """How many of the guest's connections it would only reset; None if it has others.

        Args:
            known: The connections that are reset if this relay ends. It must not end with any other.
        """
        flows = [*(each.flow for each in self._splices.values()), *self._refused.values()]
        if self._connecting or self._acceptor.has_waiting or not all(flow in known for flow in flows):
            return None
        if not all(splice.is_over for splice in self._splices):
            return None
        return len(self._refused) + sum(not splice.guest_is_gone for splice in self._splices)

    @property
    def owes_servers(self) -> bool:
        """Whether something that the guest has sent, or a connection that it wants, has not got out yet."""
        return bool(self._connecting) or any(splice.owes_remote() for splice in self._splices)

    def probe(self) -> None:
        """Ask the servers until ``release`` whether they still know the connections, see ``Splice.probe``."""
        self._probing = True
        for splice in self._splices:
            splice.probe(True)

    async def dial(self, connection_id: str) -> socket.socket:
        """Connect to where an inspected connection leads now. The caller owns the socket.

        Raises:
            PermissionError: The policy does not allow it any more.
            OSError: The connection has ended, or nothing answers there.
            TimeoutError: Nothing answered in time.
        """
        found = (one for one in self._connections() if one.connection_id == connection_id)
        connection = next(found, None)
        if connection is None or connection.kept is None:
            raise ConnectionAbortedError("the connection has ended")
        verdict, address = await self._egress.decide(connection.destination)
        if verdict.action in ("deny", "unplug"):
            raise PermissionError(verdict.reason)
        if _kept_by(verdict) != connection.kept:
            raise PermissionError("the name leads elsewhere now, where other rules decide")
        if self._egress.proxy_for(connection.destination) != connection.via:
            raise PermissionError("the policy has another proxy for it now")
        return await connect(self._egress, connection, address, verdict)

    def reset_inspected(self) -> None:
        """Reset the connections that pass through the edge. A held relay does so at release."""
        for connection in self._splices.values():
            connection.is_broken |= connection.kept is not None
        self._reset_broken()

    def reset_connection(self, connection_id: str) -> None:
        """Reset a connection that the edge has given up. A held relay does so at release."""
        for connection in self._connections():
            connection.is_broken |= connection.connection_id == connection_id
        self._reset_broken()

    def judge_again(self) -> None:
        """Reset the connections that the policy does not allow any more. A held relay does so at release."""
        if self._held:
            # The edge cuts what it has no new rules for, and most may go on.
            for connection in self._connections():
                self._may_live(connection)
            return
        for task, connection in list(self._connecting.items()):
            if not self._may_live(connection):
                task.cancel()
        for splice, connection in list(self._splices.items()):
            if not self._may_live(connection):
                splice.reset()

    def hold(self) -> None:
        """Pass no bytes until ``release``; connections stay open."""
        self._held = True
        for splice in self._splices:
            splice.hold()
        self.data_watch.hold()

    def release(self) -> None:
        """Undo ``hold``."""
        self._held = False
        self.data_watch.release()
        self._close_refused()
        # Not when the policy was set: a sleeping guest does not receive a reset.
        self.judge_again()
        probing, self._probing = self._probing, False
        for splice in list(self._splices):
            if probing:
                splice.probe(False)
            splice.start()

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

    def _reset_broken(self) -> None:
        if self._held:
            return
        for task, connection in list(self._connecting.items()):
            if connection.is_broken:
                task.cancel()
        for splice, connection in list(self._splices.items()):
            if connection.is_broken:
                splice.reset()

    def _connections(self) -> list[Connection]:
        return [*self._splices.values(), *self._connecting.values()]

    def _take(self, guest: socket.socket, peer: tuple[str, int]) -> None:
        if len(self._splices) >= ASK_FROM and not self._asking:
            self._ask(wanted=True)
            self._asking = self._loop.call_later(_ASK_S, self._ask_no_more)
        try:
            tune(guest)
            flow = Flow(peer[1], *_original_destination(guest))
        except OSError:
            return self._refuse(guest, None)
        if len(self._splices) + len(self._connecting) >= MAX_CONNECTIONS:
            return self._refuse(guest, flow)
        destination = self._egress.destination(flow.address, flow.port)
        verdict = self._egress.at_once(destination)
        connection = Connection(f"c{next(_numbers)}", flow, destination, flow.address)
        connection.via = self._egress.proxy_for(destination)
        if verdict is not None and verdict.action in ("deny", "unplug"):
            self._egress.note(verdict, destination.host, destination.port, "tcp")
            return self._end(guest, flow, verdict)
        return self._make(self._lead(guest, connection, verdict), guest, connection)

    def _make(
        self, work: Coroutine[None, None, Splice], guest: socket.socket, connection: Connection
    ) -> None:
        task = self._loop.create_task(work)
        self._connecting[task] = connection
        # Not in the task itself: a task that is cancelled early never runs, and the guest's end would stay
        # open.
        task.add_done_callback(lambda connected: self._on_connected(guest, connection.flow, connected))

    async def _lead(self, guest: socket.socket, connection: Connection, verdict: Verdict | None) -> Splice:
        """Connect to where a connection leads. The verdict is None if a name must be resolved for it."""
        destination = connection.destination
        if verdict is None:
            verdict, connection.address = await self._egress.decide(destination)
        self._egress.note(verdict, destination.host, destination.port, "tcp")
        if verdict.action == "inspect":
            return await self._inspect(guest, connection, _kept_by(verdict))
        if verdict.action != "allow":
            raise _RefusedError(verdict)
        remote = await connect(self._egress, connection, connection.address, verdict)
        splice = self._splice(guest, remote)
        if destination.name is not None and self._egress.looks_into(destination.name):
            gate = Gate(
                guest, remote, destination.name, lambda way, sent: self._passed(splice, verdict, way, sent)
            )
            splice.close_gate(gate)
        return splice

    def _splice(self, guest: socket.socket, remote: socket.socket) -> Splice:
        splice = Splice(guest, remote, self._room, lambda: self._forget(splice))
        return splice

    async def _inspect(
        self, guest: socket.socket, connection: Connection, kept: Kept, sent: bytes = b""
    ) -> Splice:
        if self.inspector is None:
            raise _RefusedError(Verdict("deny", reason="the process that judges requests does not run"))
        connection.kept = kept
        inspector = await self.inspector.take(connection)
        inspector.send(sent)
        return self._splice(guest, inspector)

    def _passed(self, splice: Splice, verdict: Verdict, way: Passage, sent: bytes) -> None:
        """Go on after the first bytes of a guest told what it speaks. Some may have been sent on already."""
        if way == "pass":
            return splice.open_gate()
        connection = self._splices[splice]
        destination = connection.destination
        guest = splice.give_back() if way == "inspect" else None
        if guest is None:
            denied = Verdict("deny", verdict.rule, reason=f"it does not ask for {destination.name}")
            self._egress.note(denied, destination.host, destination.port, "tcp")
            return splice.reset()
        self._forget(splice)
        # Not by the verdict of before: the policy may have changed since.
        now = self._egress.again(destination, connection.address)
        kept = _kept_by(now)
        return self._make(self._inspect(guest, connection, kept, sent), guest, connection)

    def _on_connected(self, guest: socket.socket, flow: Flow, task: asyncio.Task[Splice]) -> None:
        connection = self._connecting.pop(task, None)
        if task.cancelled():
            return self._refuse(guest, flow)
        if error := task.exception():
            return self._end(guest, flow, error.verdict if isinstance(error, _RefusedError) else None)
        splice = task.result()
        if connection is None:
            return splice.reset()
        self._splices[splice] = connection
        if self._held:
            self.data_watch.add(splice)
        else:
            splice.start()
        return None

    def _may_live(self, connection: Connection) -> bool:
        if connection.is_broken or connection.via != self._egress.proxy_for(connection.destination):
            return False
        verdict = self._egress.again(connection.destination, connection.address)
        if connection.kept is None or verdict.action in ("deny", "unplug"):
            return verdict.action == "allow"
        kept = _kept_by(verdict)
        connection.kept = kept
        if self.inspector is not None:
            self.inspector.judge_by(connection)
        return verdict.action == "inspect" or bool(kept.own)

    def _end(self, guest: socket.socket, flow: Flow, verdict: Verdict | None) -> None:
        self._refuse(guest, flow)
        if verdict is not None and verdict.action == "unplug":
            self._egress.unplug(verdict.reason)

    def _ask_no_more(self) -> None:
        # A later question would be taken for traffic for which a paused guest must wake.
        self._asking = None
        self._ask(wanted=False)

    def _ask(self, *, wanted: bool) -> None:
        for splice in list(self._splices):
            splice.ask(wanted)

    def _refuse(self, guest: socket.socket, flow: Flow | None) -> None:
        if self._held:
            # A reset is sent once. A sleeping guest would miss it, and then wait for ever after it wakes.
            self._refused[guest] = flow
        else:
            guest.close()

    def _close_refused(self) -> None:
        for guest in self._refused:
            guest.close()
        self._refused.clear()

    def _forget(self, splice: Splice) -> None:
        self.data_watch.forget(splice)
        self._splices.pop(splice, None)


def _kept_by(verdict: Verdict) -> Kept:
    """The rules by which the edge judges a connection with this verdict."""
    return Kept() if verdict.ceiling else Kept(verdict.deciding, verdict.above)


class _RefusedError(Exception):
    """The policy refuses a connection."""

    def __init__(self, verdict: Verdict) -> None:
        super().__init__(verdict.reason)
        self.verdict = verdict


def _original_destination(guest: socket.socket) -> tuple[str, int]:
    data = guest.getsockopt(socket.SOL_IP, _SO_ORIGINAL_DST, 16)
    port, address = struct.unpack_from(">2xH4s", data)
    return socket.inet_ntoa(address), port
