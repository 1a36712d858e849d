"""Channels to the relay and the edge: messages in JSON, with descriptors."""

from __future__ import annotations

import array
import asyncio
import contextlib
import fcntl
import os
import socket
from collections import deque
from collections.abc import Callable
from typing import Any

import msgspec

from atoll.types.internal import from_json

_LONGEST_BYTES = 64 << 10
_LONGEST_DOCUMENT_BYTES = 64 << 20
_MOST_WAITING = 4096
_RECEIVES = 64
_SEALS = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE

Message = dict[str, Any]


class Channel:
    """One end of a channel. Messages that do not fit into the kernel's queue wait here, in order.

    Args:
        channel: A socket that keeps messages apart; the channel owns it from now on.
        received: Called with each message that comes.
        ended: Called once, when the other end is gone or breaks the protocol.
    """

    def __init__(
        self, channel: socket.socket, received: Callable[[Message], None], ended: Callable[[], None]
    ) -> None:
        channel.setblocking(False)
        self._channel = channel
        self._received = received
        self._ended = ended
        self._waiting: deque[tuple[bytes, int | None]] = deque()
        self._loop = asyncio.get_running_loop()
        self._open = True
        self._is_full = False
        self._loop.add_reader(channel, self._on_readable)

    def send(self, message: Message, fd: int | None = None) -> None:
        """Send a message, and with it a descriptor, which is closed here.

        Raises:
            OSError: The channel has ended, or the other end does not read.
        """
        data = msgspec.json.encode(message)
        if not self._open or len(self._waiting) >= _MOST_WAITING or len(data) > _LONGEST_BYTES:
            _close(fd)
            raise OSError("the other end of the channel takes no message")
        self._waiting.append((data, fd))
        if len(self._waiting) == 1:
            self._on_writable()

    def send_document(self, message: Message, document: object) -> None:
        """Send a message with a document of any size.

        Raises:
            OSError: The channel has ended, or memory is short.
        """
        self.send(message, in_memory(document))

    def close(self) -> None:
        """Close it. Idempotent."""
        if not self._open:
            return
        self._open = False
        self._loop.remove_reader(self._channel)
        self._loop.remove_writer(self._channel)
        self._channel.close()
        while self._waiting:
            _close(self._waiting.popleft()[1])

    def _on_readable(self) -> None:
        for _ in range(_RECEIVES):
            if not self._open or not self._receive():
                break

    def _receive(self) -> bool:
        """Take one message. Returns whether there may be another one."""
        try:
            data, fds, _, _ = socket.recv_fds(self._channel, _LONGEST_BYTES + 1, 1)
        except BlockingIOError:
            return False
        except OSError:
            data, fds = b"", []
        for fd in fds:  # the other end is to send none
            os.close(fd)
        message = _decoded(data)
        if message is None:
            self.close()
            self._ended()
            return False
        self._received(message)
        return True

    def _on_writable(self) -> None:
        while self._waiting:
            data, fd = self._waiting[0]
            passed = [] if fd is None else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [fd]))]
            try:
                self._channel.sendmsg([data], passed)
            except BlockingIOError:
                self._is_full = True
                return self._loop.add_writer(self._channel, self._on_writable)
            except OSError:  # it ends: reading tells
                break
            self._waiting.popleft()
            _close(fd)
        if self._is_full:
            self._is_full = False
            self._loop.remove_writer(self._channel)
        return None


def in_memory(document: object) -> int:
    """Write a document into a file in memory that nobody can change. The caller owns the descriptor.

    Raises:
        OSError: Memory or descriptors are short.
    """
    fd = os.memfd_create("atoll-document", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(msgspec.json.encode(document))
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_document(fd: int) -> Any:
    """Read a document that ``in_memory`` or the other end has written, and close the descriptor.

    Raises:
        ValueError: The content is no document.
    """
    with open(fd, "rb") as file:
        file.seek(0)
        return from_json(file.read(_LONGEST_DOCUMENT_BYTES))


def _decoded(data: bytes) -> Message | None:
    with contextlib.suppress(msgspec.DecodeError):
        message = from_json(data)
        if isinstance(message, dict) and isinstance(message.get("op"), str):
            return message
    return None


def _close(fd: int | None) -> None:
    if fd is not None:
        os.close(fd)
