"""The client's side of HTTP/1.1 without input or output: bytes to send, bytes received, events."""

from __future__ import annotations

from typing import NamedTuple

import h11

from atoll.errors import AgentError
from atoll.guest.requests import GuestRequest


class HttpHead(NamedTuple):
    """The head of an answer. Header names are in lower case."""

    status: int
    headers: dict[str, str]


class Body(NamedTuple):
    """A piece of an answer's body; an empty one ends it."""

    data: bytes


class HttpClient:
    """Requests and answers of one connection, one after the other."""

    def __init__(self) -> None:
        self._http = h11.Connection(h11.CLIENT)

    @property
    def reusable(self) -> bool:
        """Whether the last exchange is over and the connection can take another."""
        return self._http.our_state is h11.IDLE or (
            self._http.our_state is h11.DONE and self._http.their_state is h11.DONE
        )

    @property
    def request_done(self) -> bool:
        """Whether the whole request, including its body, has been returned for sending."""
        return self._http.our_state is not h11.SEND_BODY

    def request(self, request: GuestRequest, *, length: int | None = None) -> bytes:
        """Begin an exchange and return the bytes to send.

        If the request has no ``body``, call ``data`` and ``end`` next: for ``length`` bytes in all, or
        chunked if ``length`` is None.
        """
        if self._http.our_state is h11.DONE:
            self._http.start_next_cycle()
        headers = list(request.headers)
        if not any(name == "host" for name, _ in headers):
            headers.insert(0, ("host", "atoll"))
        if request.body is None:
            headers.append(
                ("transfer-encoding", "chunked") if length is None else ("content-length", str(length))
            )
        elif request.body or request.method != "GET":
            headers.append(("content-length", str(len(request.body))))
        out = self._sent(h11.Request(method=request.method, target=request.target, headers=headers))
        if request.body is None:
            return out
        if request.body:
            out += self.data(request.body)
        return out + self.end()

    def data(self, data: bytes) -> bytes:
        """Return the bytes to send for a piece of the request's body."""
        return self._sent(h11.Data(data=data))

    def end(self) -> bytes:
        """Return the bytes to send at the end of the request's body."""
        return self._sent(h11.EndOfMessage())

    def _sent(self, event: h11.Event) -> bytes:
        return self._http.send(event) or b""

    def receive(self, data: bytes) -> None:
        """Add bytes from the peer; empty bytes mean that it closed."""
        try:
            self._http.receive_data(data)
        except (h11.RemoteProtocolError, RuntimeError) as error:
            raise AgentError(f"the peer sent data after the end of its answer: {error}") from None

    def next_event(self) -> HttpHead | Body | None:
        """Return the next part of the answer, or None if more bytes are needed.

        Raises:
            ConnectionResetError: The peer closed in the middle.
            AgentError: The peer sent something other than HTTP.
        """
        while True:
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                if self._http.trailing_data[1]:
                    raise ConnectionResetError(f"the connection ended too early: {error}") from None
                raise AgentError(f"the peer does not speak HTTP: {error}") from None
            if event is h11.NEED_DATA or event is h11.PAUSED:
                return None
            if isinstance(event, h11.Response):
                headers = {name.decode("ascii"): value.decode("latin-1") for name, value in event.headers}
                return HttpHead(event.status_code, headers)
            if isinstance(event, h11.Data):
                if event.data:
                    return Body(bytes(event.data))
            elif isinstance(event, h11.EndOfMessage):
                return Body(b"")
            elif isinstance(event, h11.ConnectionClosed):
                raise ConnectionResetError("the connection was closed before an answer")
