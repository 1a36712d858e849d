"""Notices data that comes for a guest that sleeps."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Mapping

from atoll.network.connection import Connection
from atoll.network.splice import Splice

_RECORD = struct.Struct(">BHH")
_ALERT, _DATA = 21, 23
_VERSIONS = range(0x0301, 0x0305)
# An alert of TLS 1.3: its two bytes, its kind, and what proves that nobody has changed it.
_HIDDEN_ALERT_BYTES = 19
_FAREWELL_MOST_BYTES = 64
# The end of a connection comes with the word that announces it, or right after.
_END_S = 1.0
_MOMENT_MS = 50


class DataWatch:
    """Watches the held connections of one guest for data. Watching costs nothing until something comes.

    It tells of the first data and then watches no more: what has come stays in the sockets. The end of a
    connection is no data, whether it is a reset, an end of stream, or one that TLS announces.

    Args:
        splices: The guest's connections at any time.
        may_live: Whether the policy still allows a connection.
    """

    def __init__(self, splices: Mapping[Splice, Connection], may_live: Callable[[Connection], bool]) -> None:
        self._splices = splices
        self._may_live = may_live
        self._told: Callable[[str], None] | None = None
        self._watched: dict[Splice, asyncio.TimerHandle | None] = {}
        self._held = False

    @property
    def is_on(self) -> bool:
        """Whether data may come on a connection that it watches."""
        return bool(self._watched)

    @property
    def is_fresh(self) -> bool:
        """Whether the guest has got something only a moment ago, for which it may have had no time."""
        return any(
            not splice.guest_is_gone and splice.owes_guest(within_ms=_MOMENT_MS) for splice in self._splices
        )

    def hold(self) -> None:
        """Note that the connections are held, so that they may be watched."""
        self._held = True

    def release(self) -> None:
        """Watch no more, because the connections are used again."""
        self._held = False
        self._end()

    def begin(self, told: Callable[[str], None]) -> None:
        """Watch all connections that are held, also for what has come already.

        Args:
            told: Called at most once, with whom the data is from.
        """
        if not self._held:
            return
        self._end()
        self._told = told
        for splice in list(self._splices):
            self.add(splice)

    def add(self, splice: Splice) -> None:
        """Watch one more connection, if any are watched. One that has ended is not watched."""
        if self._told is None or splice.guest_is_gone:
            return
        splice.owes_remote()  # what the guest said last is to get out, as the answer may wake it
        if splice.owes_guest():
            self._tell(splice)
        elif not self._look(splice):
            self._watched[splice] = None
            splice.watch(lambda: self._on_readable(splice))

    def forget(self, splice: Splice) -> None:
        """Watch a connection no more."""
        if splice in self._watched:
            timer = self._watched.pop(splice)
            if timer is not None:
                timer.cancel()
            splice.watch(None)

    def _on_readable(self, splice: Splice) -> None:
        if not self._look(splice):  # urgent data, of which nothing can be peeked at
            self._tell(splice)

    def _look(self, splice: Splice) -> bool:
        """Look at what has come. Returns False if nothing has."""
        unread = splice.peek(_FAREWELL_MOST_BYTES + 1)
        if unread and not is_farewell(unread):
            self._tell(splice)
        elif splice.remote_has_ended:
            self.forget(splice)
        elif unread:
            self.forget(splice)
            timer = asyncio.get_running_loop().call_later(_END_S, self._judge, splice, unread)
            self._watched[splice] = timer
        else:
            return False
        return True

    def _judge(self, splice: Splice, farewell: bytes) -> None:
        """Judge what looked like a farewell, after the end had time to come."""
        over = splice.remote_has_ended or farewell[0] == _ALERT
        if over and splice.peek(_FAREWELL_MOST_BYTES + 1) == farewell:
            self.forget(splice)
        else:
            self._tell(splice)

    def _tell(self, splice: Splice) -> None:
        connection = self._splices[splice]
        if not self._may_live(connection):  # the guest would only get a reset
            return self.forget(splice)
        told = self._told
        self._end()
        if told is not None:
            told(f"{connection.destination.host}:{connection.destination.port}")
        return None

    def _end(self) -> None:
        self._told = None
        for splice in list(self._watched):
            self.forget(splice)


def is_farewell(data: bytes) -> bool:
    """Whether data may be TLS's announcement of an end, and nothing else.

    In TLS 1.3 it looks as two bytes of content would.
    """
    if len(data) < _RECORD.size:
        return False
    kind, version, length = _RECORD.unpack_from(data)
    if version not in _VERSIONS or len(data) != _RECORD.size + length or len(data) > _FAREWELL_MOST_BYTES:
        return False
    return bool(kind == _ALERT or (kind == _DATA and length == _HIDDEN_ALERT_BYTES))
