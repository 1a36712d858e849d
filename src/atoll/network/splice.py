"""Joins two sockets into one connection."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import select
import socket
import struct
import termios
from collections.abc import Callable

from atoll.network.gate import Gate
from atoll.network.pump import Pump
from atoll.network.room import Room

_TCP_RTO_MAX_MS = 44
_LONG_MS = 0x7FFFFFFF
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
_FLUSH_ON_CLOSE = struct.pack("ii", 0, 0)
# Of ``tcp_info``: the milliseconds since data was sent.
_SENT_MS = struct.Struct("=44xI")
# Often enough that a host between the two does not forget the connection.
_PROBE_S = 60


def tune(end: socket.socket) -> None:
    """Prepare one end: no delay, no timeout, and a reset when this process dies or closes it.

    A suspended guest answers nothing for days and then continues. Until then the kernel retransmits what is
    not acknowledged. Where it can (Linux 6.15) it does so every second, so that it soon notices the waking.
    """
    end.setblocking(False)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _LONG_MS)
    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    try:
        end.setsockopt(socket.IPPROTO_TCP, _TCP_RTO_MAX_MS, 1000)
    except OSError:
        return


class Splice:
    """A guest's connection and its counterpart on the host, joined both ways with half-close.

    Args:
        guest: The guest's end; the splice owns both ends from now on.
        remote: The other end.
        room: How much data the connections of this guest may hold together.
        ended: Called once, when both ends are closed.
    """

    def __init__(
        self, guest: socket.socket, remote: socket.socket, room: Room, ended: Callable[[], None]
    ) -> None:
        self._ends = (guest, remote)
        self._ended = ended
        self._open = 2
        self._gate: Gate | None = None
        self._watched = False
        self._pumps = (Pump(guest, remote, room, self._on_end), Pump(remote, guest, room, self._on_end))

    def close_gate(self, gate: Gate) -> None:
        """Let nothing from the guest pass until ``open_gate``; call it before ``start``."""
        self._gate = gate

    def open_gate(self) -> None:
        """Let the guest's bytes pass from now on."""
        self._gate = None
        self._pumps[0].start()

    def start(self) -> None:
        """Let bytes pass, also after ``hold``."""
        from_guest, to_guest = self._pumps
        to_guest.start()
        if self._gate is None:
            from_guest.start()
        else:
            self._gate.start()

    def hold(self) -> None:
        """Let no bytes pass until ``start``; both ends stay open."""
        if self._gate is not None:
            self._gate.stop()
        for pump in self._pumps:
            pump.stop()

    def give_back(self) -> socket.socket | None:
        """Return the guest's end for another connection, and close the other end.

        None if the guest has received something already; then nothing has changed.
        """
        if self._open < 2 or self._pumps[1].moved:
            return None
        self.hold()
        self._open = 0
        guest, remote = self._ends
        remote.close()
        return guest

    def reset(self) -> None:
        """Reset both ends. Idempotent."""
        if self._open <= 0:
            return
        self._open = 0
        self._close()

    def ask(self, wanted: bool) -> None:
        """Ask the guest whether it still knows the connection, if it has ended its side. False stops asking.

        A guest that has closed the connection forgets it after a minute. It then answers with a reset, which
        ends the connection here too.
        """
        if self._open > 0 and self._pumps[0].done:
            guest = self._ends[0]
            # Nothing is read from it any more, so the reset is not reported.
            if guest.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return self.reset()
            guest.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, wanted)
            guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        return None

    def probe(self, wanted: bool) -> None:
        """Ask the remote side every minute whether it still knows the connection. False stops asking.

        Silence ends nothing, because ``tune`` has set no time limit. A reset does.
        """
        remote = self._ends[1]
        with contextlib.suppress(OSError):  # the process that judges requests has no TCP to it
            if self._open > 0:
                remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_S)
                remote.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_S)
                remote.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, wanted)

    @property
    def is_over(self) -> bool:
        """Whether a held connection could only be reset: an end is gone, and nothing is left for the guest."""
        if self._open <= 0:
            return True
        if self._pumps[1].holds_bytes or _unread_bytes(self._ends[1]):
            return False
        return self.guest_is_gone or _has_failed(self._ends[1])

    @property
    def guest_is_gone(self) -> bool:
        """Whether the kernel has given up the guest's end."""
        return self._open <= 0 or _has_failed(self._ends[0])

    def owes_guest(self, *, within_ms: int = 0) -> bool:
        """Whether something from the remote side has not reached the guest, or only in the last ``within_ms``."""
        guest, to_guest = self._ends[0], self._pumps[1]
        # The end of the stream counts as one byte.
        if to_guest.holds_bytes or _unacknowledged_bytes(guest) > to_guest.done:
            return True
        (sent_ms,) = _SENT_MS.unpack(guest.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SENT_MS.size))
        return bool(sent_ms < within_ms)

    def owes_remote(self) -> bool:
        """Whether something from the guest waits here. What a held connection can send out is sent first."""
        if self._open <= 0:
            return False
        guest, remote = self._ends
        from_guest = self._pumps[0]
        if self._gate is None and not _has_failed(remote):
            while _unread_bytes(guest) and from_guest.push():
                pass
        return from_guest.holds_bytes or _unread_bytes(guest) > 0

    @property
    def remote_has_ended(self) -> bool:
        """Whether nothing more can come from the remote side."""
        return self._open <= 0 or _events(self._ends[1], select.POLLRDHUP) != 0

    def watch(self, readable: Callable[[], None] | None) -> None:
        """Call this whenever something can be read from the remote side of a held connection. None ends that."""
        loop = asyncio.get_running_loop()
        if readable is not None:
            loop.add_reader(self._ends[1], readable)
        elif self._watched:
            loop.remove_reader(self._ends[1])
        self._watched = readable is not None

    def peek(self, most: int) -> bytes:
        """Return what can be read from the remote side of a held connection, which leaves it there."""
        # An error that is only read here would be no reset any more for the guest.
        if self._open > 0 and _unread_bytes(self._ends[1]):
            with contextlib.suppress(BlockingIOError):
                return self._ends[1].recv(most, socket.MSG_PEEK)
        return b""

    def _on_end(self, error: OSError | None) -> None:
        if error is not None:
            return self.reset()
        self._open -= 1
        if self._open == 0:
            for end in self._ends:
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FLUSH_ON_CLOSE)
            self._close()
        return None

    def _close(self) -> None:
        self.hold()
        self.watch(None)
        for end in self._ends:
            end.close()
        self._ended()


def _has_failed(end: socket.socket) -> bool:
    return bool(_events(end, 0) & select.POLLERR)


def _events(end: socket.socket, wanted: int) -> int:
    poll = select.poll()
    poll.register(end, wanted)
    return next((events for _, events in poll.poll(0)), 0)


def _unread_bytes(end: socket.socket) -> int:
    return _count(end, termios.FIONREAD)


def _unacknowledged_bytes(end: socket.socket) -> int:
    return _count(end, termios.TIOCOUTQ)


def _count(end: socket.socket, what: int) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(end, what, bytes(4)))
    return int(count)
