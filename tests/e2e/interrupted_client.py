"""Makes sandboxes and is stopped from outside meanwhile. Usage: python interrupted_client.py WHAT [NAME].

``create`` and ``fork`` kill what they got; ``unread`` asks and never reads. Each says that it begins.
"""

from __future__ import annotations

import signal
import socket
import sys
import time

from atoll import Sandbox, Wait
from atoll.host import Home

COPIES = 4


def begin() -> None:
    """Say that the call is next."""
    print("begun", flush=True)  # noqa: T201


def make(what: str, name: str) -> list[Sandbox]:
    """Ask for sandboxes."""
    if what == "create":
        begin()
        return [Sandbox.create(name="leak", wait=Wait(on_progress=lambda _: None))]
    with Sandbox.connect(name) as original:
        begin()
        return original.fork(COPIES)


def ask(path: str, body: bytes) -> None:
    """Ask for sandboxes, and read nothing."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(Home.default().api_socket))
    head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len(body)}\r\n\r\n"
    connection.sendall(head.encode() + body)
    begin()
    time.sleep(600)


def main() -> None:
    """Do what the command line says."""
    what, name = sys.argv[1], sys.argv[2]
    if what == "unread":
        ask("/v1/sandboxes", b'{"name": "leak"}')
    if what == "unread-fork":
        ask(f"/v1/sandboxes/{name}/fork", b'{"count": %d}' % COPIES)
    made: list[Sandbox] = []
    try:
        made = make(what, name)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    finally:
        for sandbox in made:
            sandbox.kill()


if __name__ == "__main__":
    main()
