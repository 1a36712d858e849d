"""A supervisor and a guest agent that answer what a test tells them to, on real sockets."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec

from atoll.host import Home
from atoll.protocol import PROTOCOL_VERSION, DialAnswer, ErrorBody, decode_request, encode

SANDBOX_ID = "abcdefghij0123456789"
Route = Callable[["Handler"], None]


def info(**changes: Any) -> dict[str, Any]:
    """A SandboxInfo as the API sends it."""
    return {
        "sandbox_id": SANDBOX_ID,
        "name": "alice",
        "image": "base",
        "state": "running",
        "created_at": 1.0,
        "changed_at": 1.0,
        "env": {},
        "metadata": {},
        "network": "internet",
        "limits": {},
        "user": "user",
        "cwd": "/home/user",
        **changes,
    }


class Handler(BaseHTTPRequestHandler):
    """Answers from a table of routes; one object per connection."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    server: Server  # type: ignore[assignment]  # not a server of the standard library

    def setup(self) -> None:
        super().setup()
        self.body = b""

    def log_message(self, *_: Any) -> None:
        """Say nothing."""

    def handle_one_request(self) -> None:
        with contextlib.suppress(OSError):
            super().handle_one_request()
            return
        self.close_connection = True

    def _answer(self) -> None:
        path = self.path.partition("?")[0]
        self.server.requests.append((self.command, self.path))
        route = self.server.routes.get((self.command, path))
        self.body = self._read_body()
        if route is None:
            self.send_json({"code": "not_found", "message": f"no route {path}"}, 404)
        elif callable(route):
            route(self)
        else:
            self.send_json(route)

    do_GET = do_POST = do_PUT = do_DELETE = _answer

    def _read_body(self) -> bytes:
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        body = b""
        while size := int(self._size_line(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _size_line(self) -> bytes:
        line = self.rfile.readline()
        if not line:
            raise ConnectionResetError
        return line

    def send_json(self, value: Any, status: int = 200) -> None:
        """Answer with a JSON body."""
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def send_nothing(self) -> None:
        """Answer with 204."""
        self.send_response(204)
        self.end_headers()

    def begin_stream(self) -> None:
        """Begin a chunked answer."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, data: bytes) -> None:
        """Send one chunk; an empty one ends the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def frames(self, *frames: tuple[str, Any]) -> None:
        """Send frames; a payload that is no bytes is sent as JSON."""
        for kind, payload in frames:
            data = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
            self.chunk(kind.encode() + len(data).to_bytes(4, "big") + data)

    def cut(self) -> None:
        """End the connection in the middle."""
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Serves connections with ``routes``, one thread each, until it is closed."""

    def __init__(self, routes: dict[tuple[str, str], Any]) -> None:
        self.routes = routes
        self.requests: list[tuple[str, str]] = []
        self.connections: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def serve(self, connection: socket.socket) -> None:
        """Serve one connection in a thread."""
        self.connections.append(connection)
        thread = threading.Thread(target=self._serve, args=(connection,))
        thread.start()
        self._threads.append(thread)

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            Handler(connection, "peer", self)  # type: ignore[arg-type]

    def cut_all(self) -> None:
        """Shut every connection, as the supervisor does when a sandbox goes to sleep."""
        for connection in self.connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End every connection and thread."""
        self.cut_all()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


class FakeSupervisor:
    """Both sockets of a supervisor, for the home that ``ATOLL_HOME`` names."""

    def __init__(self, path: Path) -> None:
        self.home = Home(path)
        self.home.make()
        self.api = Server({("GET", "/hello"): self.hello(), ("GET", f"/v1/sandboxes/{SANDBOX_ID}"): info()})
        self.api.routes["POST", "/v1/sandboxes"] = info()
        self.api.routes["POST", "/v1/sandboxes/alice/wake"] = info()
        self.api.routes["DELETE", f"/v1/sandboxes/{SANDBOX_ID}"] = Handler.send_nothing
        self.agent = Server({})
        self.dials: list[tuple[str, int]] = []
        self.dial_error: ErrorBody | None = None
        self.dial: Callable[[int], socket.socket] = self._dial_agent
        self._listeners: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def hello(self, **changes: Any) -> dict[str, Any]:
        """What it says of itself."""
        told = {"product": "atoll", "version": "0.1.0", "protocol": PROTOCOL_VERSION, "pid": os.getpid()}
        return {**told, "home": str(self.home.path), **changes}

    def __enter__(self) -> FakeSupervisor:
        self._listen(self.home.api_socket, socket.SOCK_STREAM, self.api.serve)
        self._listen(self.home.dial_socket, socket.SOCK_SEQPACKET, self._answer_dial)
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        self.api.close()
        self.agent.close()
        for listener in self._listeners:
            listener.close()

    def _listen(self, path: Path, kind: socket.SocketKind, serve: Callable[[socket.socket], None]) -> None:
        listener = socket.socket(socket.AF_UNIX, kind)
        listener.bind(str(path))
        listener.listen(64)
        self._listeners.append(listener)
        thread = threading.Thread(target=self._accept, args=(listener, serve))
        self._threads.append(thread)
        thread.start()

    def _accept(self, listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
        with contextlib.suppress(OSError):
            while True:
                serve(listener.accept()[0])

    def _answer_dial(self, channel: socket.socket) -> None:
        with channel:
            request = decode_request(channel.recv(65536))
            self.dials.append((request.sandbox, request.port))
            if self.dial_error is not None:
                channel.send(encode(DialAnswer(error=self.dial_error)))
                return
            with self.dial(request.port) as connected:
                answer = encode(DialAnswer(sandbox_id=SANDBOX_ID))
                socket.send_fds(channel, [answer], [connected.fileno()])

    def _dial_agent(self, _port: int) -> socket.socket:
        near, far = socket.socketpair()
        self.agent.serve(far)
        return near


def process(*frames: tuple[str, Any], exit_code: int = 0, **end: Any) -> Route:
    """A route that runs a program: its start, ``frames`` and its end."""

    def route(handler: Handler) -> None:
        handler.begin_stream()
        handler.frames(("s", {"pid": 7}), *frames, ("x", {"exit_code": exit_code, **end}))
        handler.chunk(b"")

    return route


def sent(handler: Handler) -> Any:
    """The JSON body of a request."""
    return msgspec.json.decode(handler.body)
