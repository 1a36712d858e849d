"""Joins two sockets into one connection."""

from __future__ import annotations

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
        for end in self._ends:
            end.close()
        self._ended()


def _has_failed(end: socket.socket) -> bool:
    poll = select.poll()
    poll.register(end, 0)
    return any(events & select.POLLERR for _, events in poll.poll(0))


def _unread_bytes(end: socket.socket) -> int:
    (count,) = struct.unpack("i", fcntl.ioctl(end, termios.FIONREAD, bytes(4)))
    return int(count)
