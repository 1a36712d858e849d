"""Looks at the first bytes that a guest sends before any of them goes on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import Literal

from atoll.network.first_bytes import LONGEST_BYTES, FirstBytes, read_first_bytes
from atoll.policy import plain_host

_PATIENCE_S = 0.1
Passage = Literal["pass", "inspect", "refuse"]


def passage(first: FirstBytes, name: str) -> Passage:
    """Whether a connection to a name may go on as it is.

    A server may have several names, and a rule allows one of them. So TLS must ask for that name. Plain HTTP
    says the name in each request, and a greeting that may hide a name must be opened: the edge does both.
    """
    if first.kind == "tls" and not first.hides_name:
        return "pass" if first.server_name and plain_host(first.server_name) == name else "refuse"
    if first.kind in ("tls", "http"):
        return "inspect"
    return "refuse" if first.kind == "invalid" else "pass"


class Gate:
    """Waits for the first bytes, which stay in the socket until it is decided what happens to them.

    A line that may become a request of HTTP, or may not, is sent on after a moment without its end, since some
    protocols send a word and wait. No server acts on a request without the end of its first line.

    Args:
        guest: The guest's end; non-blocking.
        remote: The other end.
        name: The plain name that the connection is to.
        decided: Called once, with what is to happen, and what was sent on already.
    """

    def __init__(
        self,
        guest: socket.socket,
        remote: socket.socket,
        name: str,
        decided: Callable[[Passage, bytes], None],
    ) -> None:
        self._guest = guest
        self._remote = remote
        self._name = name
        self._decided = decided
        self._loop = asyncio.get_running_loop()
        self._watching = False
        self._waiting: asyncio.TimerHandle | None = None
        self._sent = b""
        self._seen_bytes = 0

    def start(self) -> None:
        """Begin to look, or continue. Idempotent."""
        if not self._watching:
            self._watching = True
            self._seen_bytes = 0
            self._wait_for(1)
            self._loop.add_reader(self._guest, self._on_readable)

    def stop(self) -> None:
        """Stop looking. Idempotent."""
        if self._watching:
            self._watching = False
            self._loop.remove_reader(self._guest)
        if self._waiting is not None:
            self._waiting.cancel()
            self._waiting = None

    def _on_readable(self) -> None:
        try:
            decision = self._look(self._guest.recv(LONGEST_BYTES, socket.MSG_PEEK))
        except BlockingIOError:
            return
        except OSError:
            decision = "refuse"
        if decision is not None:
            self.stop()
            self._decided(decision, self._sent)

    def _look(self, data: bytes) -> Passage | None:
        if not data:  # the guest sends nothing more, and may still receive
            return "pass"
        first = read_first_bytes(self._sent + data)
        if first.kind != "more":
            self._wait_for(1)
            return passage(first, self._name)
        if len(data) == self._seen_bytes:  # woken without anything new: the guest has ended its side
            return "refuse"
        self._seen_bytes = len(data)
        # The kernel reports the socket as readable again when there is as much as that.
        self._wait_for(first.wanted - len(self._sent))
        if first.is_line and self._waiting is None:
            self._waiting = self._loop.call_later(_PATIENCE_S, self._send_on)
        return None

    def _send_on(self) -> None:
        """Send on what has come of the line so far."""
        self._waiting = None
        try:
            data = self._guest.recv(self._seen_bytes)
            self._sent += data
            complete = self._remote.send(data) == len(data)
        except OSError:
            complete = False
        if not complete:
            self.stop()
            return self._decided("refuse", self._sent)
        self._seen_bytes = 0
        return self._wait_for(1)

    def _wait_for(self, count: int) -> None:
        self._guest.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, count))
