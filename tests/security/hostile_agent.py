#!/usr/bin/python3
"""Process 1 of a sandbox that has turned against its host. It is run inside, in place of the agent.

Until it is told its environment it is an honest agent; the variable EVIL there says what it does from then on.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time

MODE = {"evil": os.environ.get("EVIL", "")}


def read_request(connection: socket.socket) -> tuple[str, bytes] | None:
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return None
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = 0
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == b"content-length":
            length = int(value)
    while len(body) < length:
        body += connection.recv(65536)
    return head.split(b"\r\n")[0].decode(), body


def answer(connection: socket.socket, body: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def chunked(connection: socket.socket, piece: bytes) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
    row = b"%x\r\n%b\r\n" % (len(piece), piece)
    while True:
        connection.sendall(row * (65536 // len(row) + 1))


def slowly(connection: socket.socket) -> None:
    for byte in b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000:
        connection.sendall(bytes([byte]))
        time.sleep(0.2)


def misbehave(connection: socket.socket, mode: str) -> None:
    if mode == "silent":
        time.sleep(3600)
    elif mode == "slow":
        slowly(connection)
    elif mode == "endless":
        chunked(connection, b"x" * 65536)
    elif mode == "crumbs":
        chunked(connection, b"x")
    elif mode == "headers":
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"x: y\r\n" * 10000)
    elif mode == "interim":
        while True:
            connection.sendall(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 1000)
    elif mode == "deep":
        answer(connection, b"[" * 300_000 + b"]" * 300_000)
    elif mode == "other":
        answer(connection, b'{"processes": -5, "time_ns": "never", "generation": 1e300, "files": {}}')
    elif mode == "fault":
        text = json.dumps({"code": "busy", "message": "\x1b]0;owned\x07\x1b[2J" + "x" * 5000}).encode()
        connection.sendall(b"HTTP/1.1 409 x\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text))


def serve(connection: socket.socket) -> None:
    with connection:
        while True:
            request = read_request(connection)
            if request is None:
                return
            mode = MODE["evil"]
            if mode:
                misbehave(connection, mode)
                return
            line, body = request
            if " /atoll/init" in line:
                env = json.loads(body).get("env") or {}
                # Lies begin with the answer to the first question after this one.
                answer(connection, b'{"time_ns": 1}')
                MODE["evil"] = env.get("EVIL", "")
            elif " /atoll/stats" in line:
                answer(connection, b'{"processes": 1}')
            else:
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


def quietly(connection: socket.socket) -> None:
    try:
        serve(connection)
    except OSError:
        return


def flood_log() -> None:
    while True:
        os.write(2, b"\x1b]0;owned\x07 2026-01-02T03:04:05Z program 1 ended\n" * 100)


def main() -> None:
    if os.fork() == 0:
        os.execv("/bin/sleep", ["sleep", "1000000"])
    listener = socket.create_server(("", 49983), backlog=128)
    threading.Thread(target=watch_mode, daemon=True).start()
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=quietly, args=(connection,), daemon=True).start()


def watch_mode() -> None:
    while MODE["evil"] != "log":
        time.sleep(0.05)
    MODE["evil"] = ""
    flood_log()


main()
