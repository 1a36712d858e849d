"""Calls to the relay that are answered before anything else goes on."""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from atoll.network.channel import Message, in_memory, read_document
from atoll.network.seqpacket import connect_to
from atoll.types.internal import from_json

# The relay answers within a millisecond. A relay that takes this long is stuck, and another takes its place.
CALL_S = 5.0
_LONGEST_BYTES = 64 << 10
_MOST_FDS = 4


class RelayError(OSError):
    """The relay refuses a request."""


class RelayCalls:
    """A connection to the relay for calls.

    Args:
        path: Where the relay listens.
        lost: Called when the relay is gone, or will not answer any more.

    Raises:
        OSError: The relay does not run.
    """

    def __init__(self, path: Path, lost: Callable[[], None]) -> None:
        self._ids: Iterator[int] = itertools.count(1)
        self._lost = lost
        self._socket: socket.socket | None = connect_to(path)
        self._socket.settimeout(CALL_S)

    def call(
        self, message: Message, *, document: object = None, fds: Sequence[int] = ()
    ) -> tuple[Message, list[int]]:
        """Have the relay do something, and return its answer and sockets, which the caller owns.

        Args:
            message: The request.
            document: Data too large for a message.
            fds: Descriptors to send copies of.

        Raises:
            RelayError: The relay refuses.
            OSError: The relay does not run.
        """
        if self._socket is None:
            raise ConnectionError("the relay does not run")
        content = None if document is None else in_memory(document)
        try:
            passed = [*fds, *(() if content is None else (content,))]
            data = msgspec.json.encode({**message, "id": next(self._ids)})
            socket.send_fds(self._socket, [data], passed)
            data, received, _, _ = socket.recv_fds(self._socket, _LONGEST_BYTES + 1, _MOST_FDS)
        except OSError:
            self._give_up()
            raise
        finally:
            if content is not None:
                os.close(content)
        return self._answer(data, received)

    def close(self) -> None:
        """Close it. Idempotent."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _answer(self, data: bytes, fds: list[int]) -> tuple[Message, list[int]]:
        try:
            if not data:
                raise ValueError("it ended")
            answer = from_json(data)
            # A content that does not fit into a message comes in a file instead, and brings no sockets.
            if fds and "content" not in answer:
                answer["content"] = read_document(fds.pop())
            return checked(answer), fds
        except (ValueError, TypeError) as error:
            _close(fds)
            self._give_up()
            raise ConnectionError(f"the relay answers what means nothing: {error}") from None
        except RelayError:
            _close(fds)
            raise

    def _give_up(self) -> None:
        self.close()
        self._lost()


def cut_at(path: Path, link_id: str) -> None:
    """Have a relay pass nothing of a guest any more, without its supervisor. When it returns, the last byte has passed.

    Args:
        path: Where the relay listens.

    Raises:
        OSError: It does not run, does not answer, or refuses.
    """
    calls = RelayCalls(path, lambda: None)
    try:
        calls.call({"op": "cut", "link": link_id})
    finally:
        calls.close()


def checked(answer: Message) -> Message:
    """Return an answer of the relay.

    Raises:
        RelayError: The answer is a refusal.
    """
    if error := answer.get("error"):
        raise RelayError(str(error)[:1000])
    return answer


def _close(fds: list[int]) -> None:
    for fd in fds:
        os.close(fd)
