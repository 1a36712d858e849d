"""A real S3 server of the tests, and a proxy before it that disturbs."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import logging
import time
import urllib.request
from collections.abc import Iterator
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

from atoll.store.remote import RemoteObjects

BUCKET = "bucket"


class S3:
    """A server of the protocol.

    Args:
        endpoint: Its address.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def objects(self, prefix: str, retries: int | None = None) -> RemoteObjects:
        """The objects below a prefix."""
        more: dict[str, Any] = {}
        if retries is not None:
            more["retry_config"] = {"max_retries": retries, "retry_timeout": timedelta(seconds=1)}
        return RemoteObjects(
            f"s3://{BUCKET}/{prefix}",
            endpoint=self.endpoint,
            access_key_id="key",
            secret_access_key="secret",
            region="us-east-1",
            client_options={"allow_http": True},
            **more,
        )

    @contextlib.contextmanager
    def disturbed(self) -> Iterator[Disturbed]:
        """The same server behind a proxy that fails, delays and cuts some of its answers."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
        disturbed = Disturbed(f"http://127.0.0.1:{server.server_address[1]}", self.endpoint)
        server.disturbed = disturbed  # type: ignore[attr-defined]
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield disturbed
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


class Disturbed(S3):
    """An S3 server that answers badly now and then."""

    def __init__(self, endpoint: str, upstream: str) -> None:
        super().__init__(endpoint)
        self.upstream = urlsplit(upstream).netloc
        self.cuts = self.failures = self.answers_lost = 0
        self._numbers = itertools.count(1)
        self._lock = Lock()

    def next(self) -> int:
        """The number of a request."""
        with self._lock:
            return next(self._numbers)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        pass

    def do_ANY(self) -> None:
        disturbed: Disturbed = self.server.disturbed  # type: ignore[attr-defined]
        number = disturbed.next()
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if number % 4 == 1:
            disturbed.failures += 1
            self._answer(503, {}, b"slow down")
            return
        if number % 5 == 0:
            time.sleep(0.02)
        upstream = http.client.HTTPConnection(disturbed.upstream)
        upstream.request(self.command, self.path, body, dict(self.headers.items()))
        answer = upstream.getresponse()
        data = answer.read()
        upstream.close()
        headers = {
            name: value
            for name, value in answer.getheaders()
            if name.lower() not in ("connection", "content-length", "date", "server", "transfer-encoding")
        }
        if number % 7 == 0:
            # The write counts, and its writer does not hear of it.
            disturbed.cuts += 1
            self._answer(answer.status, headers, data, cut=True)
            return
        self._answer(answer.status, headers, data)

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = do_ANY

    def _answer(self, status: int, headers: dict[str, str], data: bytes, *, cut: bool = False) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        if cut:
            if data:
                self.end_headers()
                self.wfile.write(data[: len(data) // 2])
            self.close_connection = True
            return
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextlib.contextmanager
def s3_server() -> Iterator[S3]:
    """A server with an empty bucket."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        made = urllib.request.Request(f"http://{host}:{port}/{BUCKET}", method="PUT")
        urllib.request.urlopen(made).close()
        yield S3(f"http://{host}:{port}")
    finally:
        server.stop()
