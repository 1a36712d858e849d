"""A registry on loopback: the part of its API that pulling takes, with faults on demand."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import ssl
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.registry.images import INDEX, MANIFEST, ImageSource, digest

_PATH = re.compile(r"/v2/(?P<name>.+)/(?P<kind>manifests|blobs)/(?P<ref>[^/]+)")


class Registry:
    """What is served, what was asked, and what is to go wrong.

    Attributes:
        asked: How often each path was answered with content.
        ranges: The ``Range`` headers of requests for blobs.
        login: Name and password that a token takes; None needs none.
        cut_after: Bytes after which each answer with a blob ends too early; None never does.
        busy: How many requests for blobs are answered with 429 before one is answered.
        broken: How many are answered with 500.
        elsewhere: Whether blobs are at another host, to which each request for one is sent.
        betrayed: Whether credentials reached that other host.
        wrong: Digests of blobs that are served with other content.
        gate: While it is cleared, layers are held back; what describes an image is not.
    """

    def __init__(self) -> None:
        self.manifests: dict[tuple[str, str], tuple[str, bytes]] = {}
        self.blobs: dict[str, bytes] = {}
        self.configs: set[str] = set()
        self.asked: Counter[str] = Counter()
        self.ranges: list[str] = []
        self.login: tuple[str, str] | None = None
        self.cut_after: int | None = None
        self.busy = 0
        self.broken = 0
        self.elsewhere = False
        self.betrayed = False
        self.wrong: set[str] = set()
        self.gate = threading.Event()
        self.gate.set()
        self.port = 0
        self.lock = threading.Lock()

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def put(self, name: str, tag: str, image: ImageSource) -> str:
        """Serve an image; its reference."""
        self.blobs.update(image.blobs)
        self.configs.add(json.loads(image.manifest)["config"]["digest"])
        for ref in (tag, image.digest):
            self.manifests[name, ref] = (MANIFEST, image.manifest)
        return f"{self.host}/{name}:{tag}"

    def put_index(self, name: str, tag: str, index: bytes) -> str:
        """Serve an index, whose images are served already; its reference."""
        for ref in (tag, digest(index)):
            self.manifests[name, ref] = (INDEX, index)
        return f"{self.host}/{name}:{tag}"

    def blob_requests(self) -> int:
        """How many requests for blobs got content."""
        return sum(count for path, count in self.asked.items() if "/blobs/" in path)


class _Handler(BaseHTTPRequestHandler):
    registry: Registry
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        registry = self.registry
        if self.path.startswith("/token"):
            return self._token()
        if self.path.startswith("/elsewhere/"):
            registry.betrayed |= "Authorization" in self.headers
            return self._content(self.path.removeprefix("/elsewhere/"))
        if registry.login and self.headers.get("Authorization") != "Bearer the-token":
            challenge = f'Bearer realm="http://{registry.host}/token",service="test"'
            return self._send(401, b"{}", {"WWW-Authenticate": challenge})
        if self.path in ("/v2/", "/v2"):
            return self._send(200, b"{}")
        match = _PATH.fullmatch(self.path)
        if match and match["kind"] == "manifests":
            return self._manifest(match["name"], match["ref"])
        if match:
            return self._blob(match["ref"])
        return self._send(404, b"{}")

    do_HEAD = do_GET

    def _token(self) -> None:
        login = self.registry.login or ("", "")
        wanted = "Basic " + base64.b64encode(":".join(login).encode()).decode()
        if self.headers.get("Authorization") != wanted:
            # one that tells whoever listens what it was told
            given = self.headers.get("Authorization", "").removeprefix("Basic ")
            message = f"not {given} {base64.b64decode(given).decode()}"
            return self._send(401, json.dumps({"errors": [{"code": "DENIED", "message": message}]}).encode())
        return self._send(200, json.dumps({"token": "the-token"}).encode())

    def _manifest(self, name: str, ref: str) -> None:
        kind, content = self.registry.manifests.get((name, ref), ("", b""))
        if not kind:
            body = {"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}
            return self._send(404, json.dumps(body).encode())
        self.registry.asked[self.path] += 1
        return self._send(200, content, {"Content-Type": kind, "Docker-Content-Digest": digest(content)})

    def _blob(self, ref: str) -> None:
        registry = self.registry
        if ref not in registry.configs:
            registry.gate.wait(60)
        with registry.lock:
            if registry.busy:
                registry.busy -= 1
                return self._send(429, b"{}", {"Retry-After": "0"})
            if registry.broken:
                registry.broken -= 1
                return self._send(500, b"{}")
        if registry.elsewhere:
            return self._send(307, b"", {"Location": f"http://localhost:{registry.port}/elsewhere/{ref}"})
        return self._content(ref)

    def _content(self, ref: str) -> None:
        registry = self.registry
        content = registry.blobs.get(ref)
        if content is None:
            return self._send(404, b"{}")
        registry.asked[self.path] += 1
        if ref in registry.wrong:
            content = bytes(len(content))
        start = 0
        if asked := self.headers.get("Range"):
            registry.ranges.append(asked)
            start = int(asked.removeprefix("bytes=").split("-")[0])
        rest = content[start:]
        headers = {"Content-Length": str(len(rest))}
        if start:
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        cut = registry.cut_after
        if cut is not None and cut < len(rest) and self.command == "GET":
            self.close_connection = True
            rest = rest[:cut]
        return self._send(206 if start else 200, rest, headers)

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        headers = {"Content-Length": str(len(body)), **(headers or {})}
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: Any) -> None:
        """A client that goes away is no news."""


@contextlib.contextmanager
def serving(tls: ssl.SSLContext | None = None) -> Iterator[Registry]:
    """A registry that runs meanwhile."""
    registry = Registry()
    handler = type("Handler", (_Handler,), {"registry": registry})
    server = _Server(("127.0.0.1", 0), handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    registry.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield registry
    finally:
        registry.gate.set()
        server.shutdown()
        server.server_close()
        thread.join()
