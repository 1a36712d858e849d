"""Runs inside a sandbox: a server whose answers a proxy can get wrong, each as raw bytes. Only the standard library."""

from __future__ import annotations

import base64
import hashlib
import socket
import ssl
import sys
import threading
from typing import BinaryIO

ANSWERS = {
    "/plain": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Two: a\r\nX-Two: b\r\n"
    b"Connection: X-Hop\r\nX-Hop: 1\r\n\r\nplain",
    "/old": b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    "/chunks": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"3\r\none\r\n3;x=y\r\ntwo\r\n0\r\nX-Trailer: t\r\n\r\n",
    "/early": b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "/same": b'HTTP/1.1 304 Not Modified\r\nETag: "x"\r\nContent-Length: 7\r\n\r\n',
    "/short": b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ntoo little",
    "/cut": b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n",
    "/noise": b"this is no HTTP\r\n\r\n",
    "/endless": b"HTTP/1.1 200 OK\r\n" + b"X-A: " + b"a" * 200_000 + b"\r\n\r\n",
    "/both": b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n0\r\n\r\n",
    "/twice": b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nother",
    "/switch": b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
}
HEAD_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\nX-Head: yes\r\n\r\n"


def read_head(file: BinaryIO) -> list[str]:
    lines = []
    while (line := file.readline()) not in (b"\r\n", b""):
        lines.append(line.decode("latin-1").rstrip("\r\n"))
    return lines


def serve(connection: socket.socket) -> None:
    with connection, connection.makefile("rb") as file:
        lines = read_head(file)
        if not lines:
            return
        method, target, _ = lines[0].split(" ")
        path = target.partition("?")[0]
        named = {line.partition(": ")[0].lower(): line.partition(": ")[2] for line in lines[1:]}
        if path == "/request":
            text = "\n".join(lines).encode()
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text))
        elif path == "/ticks":
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            # each event goes out when the client has asked for it: nothing may wait for more to come
            while chunk := file.readline().strip():
                data = file.read(int(chunk, 16) + 2)[:-2]
                if not data:
                    break
                connection.sendall(b"%x\r\ndata: %b\n\n\r\n" % (len(data) + 8, data))
            connection.sendall(b"0\r\n\r\n")
        elif path == "/wait":
            connection.sendall(b"HTTP/1.1 200 OK\r\n\r\nwaiting")
            file.read()
            open("/tmp/left", "w").close()
        elif path == "/socket":
            websocket(connection, file, named)
        elif method == "HEAD":
            connection.sendall(HEAD_ANSWER)
        else:
            connection.sendall(ANSWERS.get(path, b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"))


def websocket(connection: socket.socket, file: BinaryIO, named: dict[str, str]) -> None:
    key = named["sec-websocket-key"].encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accept = base64.b64encode(hashlib.sha1(key).digest())
    head = (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "
        + accept
    )
    connection.sendall(head + b"\r\nSec-WebSocket-Protocol: second\r\n\r\n")
    while first := file.read(2):
        size = first[1] & 0x7F
        if size >= 126:
            size = int.from_bytes(file.read(2 if size == 126 else 8), "big")
        mask, data = file.read(4), bytearray(file.read(size))
        for index in range(size):
            data[index] ^= mask[index % 4]
        length = bytes([size]) if size < 126 else b"\x7e" + size.to_bytes(2, "big")
        connection.sendall(bytes([first[0]]) + length + data)
        if first[0] & 0x0F == 8:
            return


def accepted(connection: socket.socket, context: ssl.SSLContext | None) -> None:
    if context is not None:
        connection = context.wrap_socket(connection, server_side=True)
    serve(connection)


def main() -> None:
    listener = socket.create_server(("0.0.0.0", int(sys.argv[1])), backlog=128)
    context = None
    if len(sys.argv) > 2:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[2])
    print("listening", flush=True)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=accepted, args=(connection, context), daemon=True).start()


main()
