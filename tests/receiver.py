"""A receiver of webhooks and pushes on this host's loopback interface."""

from __future__ import annotations

import contextlib
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Post:
    """What was posted."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Receiver:
    """Keeps what is posted to it, and replies as it is told to: with a status, a body and headers.

    Attributes:
        port: Where it listens.
        reply: What it replies to a post. It runs in a thread.
    """

    port: int = 0
    posts: list[Post] = field(default_factory=list)
    reply: Callable[[Post], tuple[int, bytes, dict[str, str]]] = lambda post: (204, b"", {})

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook?to=me"

    def events(self) -> list[str]:
        return [post.headers["atoll-event"] for post in self.posts]


@contextlib.contextmanager
def receiving(trust: ssl.SSLContext | None = None) -> Iterator[Receiver]:
    """Receive posts while the context lasts, with TLS if there is a certificate."""
    receiver = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
            post = Post(self.path, {name.lower(): value for name, value in self.headers.items()}, body)
            receiver.posts.append(post)
            status, reply, headers = receiver.reply(post)
            with contextlib.suppress(OSError):  # whoever posted has left
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(reply))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(reply)

        def log_message(self, *args: object) -> None:
            return None

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if trust is not None:  # each thread shakes hands by itself
        server.socket = trust.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    receiver.port = server.server_port
    serving = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    serving.start()
    try:
        yield receiver
    finally:
        server.shutdown()
        serving.join()
        server.server_close()
