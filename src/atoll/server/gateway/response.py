"""Reads the answers of servers inside, piece by piece. A guest may send anything; little of it is kept."""

from __future__ import annotations

from typing import NamedTuple

import httptools

from atoll.server.gateway.headers import Headers

HEAD_BYTES = 64 << 10
# the size of one read; its last byte may end the head
_PIECE_BYTES = 512 << 10
_SWITCHING = 101


class GuestError(Exception):
    """Reports that a server inside did not send HTTP, or sent more than anybody needs."""


class Head(NamedTuple):
    """The head of an answer. Header names are in lower case."""

    status: int
    headers: Headers


class ResponseParser:
    """Reads an answer. Give it bytes with ``feed``, and take ``head`` and ``pieces``.

    Args:
        bodiless: Whether the answer has no body, whatever its head says, because the request was HEAD.

    Attributes:
        head: The head, once it is complete.
        pieces: The pieces of the body received and not yet taken.
        complete: Whether the answer is complete.
        reusable: Whether the connection can take another request after this answer.
        until_close: Whether the answer ends with the connection.
    """

    def __init__(self, *, bodiless: bool) -> None:
        self.head: Head | None = None
        self.pieces: list[bytes] = []
        self.complete = False
        self.reusable = False
        self.until_close = False
        self._bodiless = bodiless
        self._headers: Headers = []
        self._interim = False
        self._before_head = 0
        self._idle = 0
        self._left: int | None = None
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Read received bytes.

        Raises:
            GuestError: The bytes are not an answer.
        """
        if self.head is None:
            self._before_head += len(data)
        elif self.complete:
            self.reusable = False
            return
        elif self._left is not None:
            self._count(data)
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            raise GuestError(f"not HTTP: {error}") from None
        if self.head is None and self._before_head > HEAD_BYTES:
            raise GuestError("its head is too long")
        if self.head is not None and not self.complete:
            self._idle = 0 if self.pieces else self._idle + len(data)
            if self._idle > HEAD_BYTES + _PIECE_BYTES:
                raise GuestError("its chunks carry more overhead than data")

    @property
    def is_untouched(self) -> bool:
        """Tell whether no byte of the answer has arrived."""
        return self.head is None and self._before_head == 0

    def take(self) -> bytes:
        """Return the part of the body that has arrived since the last call."""
        pieces, self.pieces = self.pieces, []
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _count(self, data: bytes) -> None:
        """Count more of a body of known length, which needs no parsing."""
        assert self._left is not None
        self.pieces.append(data if len(data) <= self._left else data[: self._left])
        self.complete = len(data) >= self._left
        self.reusable = self.reusable and len(data) == self._left
        self._left -= len(data)

    # called by the parser

    def on_message_begin(self) -> None:
        """Handle the start of a message. No second message may follow the answer."""
        if self.complete:
            self.reusable = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a header of the head or of the trailer. A trailer is not passed on."""
        if self.head is None:
            self._headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        """Handle the end of the head. After a 1xx head another one follows."""
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, []
        if self.complete:
            self.reusable = False  # a second answer to one request
            return
        if status < 200:
            if status == _SWITCHING:
                raise GuestError("it switches protocols without a request to do so")
            self._interim = True
            return
        self.until_close = not self._bodiless and _is_until_close(status, headers)
        self.head = Head(status, headers)
        self.complete = self._bodiless
        lengths = [value for name, value in headers if name == b"content-length"]
        if lengths and not self._bodiless and status not in (204, 304):
            self._left = int(lengths[0])
            self.reusable = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        """Handle a piece of the body."""
        if not self.complete:
            self.pieces.append(data)
            if self._left is not None:
                self._left -= len(data)

    def on_message_complete(self) -> None:
        """Handle the end of the answer, or of the 1xx answer before it."""
        if self._interim:
            self._interim = False
        elif not self.complete:
            self.complete = True
            self.reusable = self._parser.should_keep_alive()


def _is_until_close(status: int, headers: Headers) -> bool:
    if status in (204, 304):
        return False
    codings = [value.strip().lower() for name, value in headers if name == b"transfer-encoding"]
    if codings not in ([], [b"chunked"]):
        raise GuestError("its transfer coding is unknown")
    return not codings and not any(name == b"content-length" for name, _ in headers)
