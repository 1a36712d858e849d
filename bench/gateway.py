"""What the gateway lets through, against the same over the passed socket of the SDK, by turns on one machine.

Both sides of a comparison send the very same bytes from the same program, so that all they differ in is the gateway.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import statistics
import struct
import time
from collections.abc import Callable
from pathlib import Path

from atoll import Hosting, Sandbox
from atoll.host import Home
from atoll.protocol import AGENT_PORT
from atoll.server import Tokens, read_secret
from bench.footprint import all_pids, command_line
from bench.measure import Number
from bench.rooms import supervisor
from bench.served import served

GB = 10**9
TURNS = 5
CONNECTIONS = 50
COMMANDS_EACH = 6
READS_EACH = 40
IDLE = 2000
Dial = Callable[[], socket.socket]


def numbers() -> list[Number]:
    """Measure."""
    with (
        supervisor(pool_size=0),
        served() as variables,
        Sandbox.create(hosting=Hosting(team="default")) as sandbox,
    ):
        host, _, port = variables["E2B_API_URL"].rpartition("//")[2].rpartition(":")
        token = Tokens(read_secret(Home.default().path / "server")).access(sandbox.id)
        headers = (
            f"Host: localhost\r\nE2b-Sandbox-Id: {sandbox.id}\r\nE2b-Sandbox-Port: {AGENT_PORT}\r\n"
            f"X-Access-Token: {token}\r\n"
        )

        def direct() -> socket.socket:
            return sandbox.ports.dial(AGENT_PORT)

        def through() -> socket.socket:
            return socket.create_connection((host, int(port)))

        sandbox.run("head -c 1000000000 /dev/zero > /tmp/large; head -c 1000 /dev/zero > /tmp/small").check()
        return [
            *downloads(direct, through, headers),
            rate("a command, 50 connections at once", direct, through, command(headers), COMMANDS_EACH, 1.25),
            rate("a read of 1 kB, 50 connections at once", direct, through, read(headers), READS_EACH, 2.0),
            idle(through),
        ]


def downloads(direct: Dial, through: Dial, headers: str) -> list[Number]:
    """One file of a GB, and what the server's memory grows by meanwhile."""
    request = f"GET /files?path=/tmp/large HTTP/1.1\r\n{headers}Connection: close\r\n\r\n".encode()
    times: tuple[list[float], list[float]] = ([], [])
    before = peak_mb()
    for _ in range(TURNS):
        for dial, taken in zip((through, direct), times, strict=True):
            with dial() as connection:
                connection.setblocking(True)
                taken.append(drained_s(connection, request))
    grown = peak_mb() - before
    return [
        Number(
            name="a download of 1 GB through the gateway", measured=statistics.median(times[0]), unit="s",
            promise=2, reference_name="direct", reference=statistics.median(times[1]),
        ),
        Number(name="the server's memory grows by, downloads of 5 GB", measured=grown, unit="MB", promise=32),
    ]  # fmt: skip


def drained_s(connection: socket.socket, request: bytes) -> float:
    """Seconds from the request to the end of the answer, which is of a GB."""
    buffer, count, began = bytearray(1 << 20), 0, time.perf_counter()
    connection.sendall(request)
    while taken := connection.recv_into(buffer):
        count += taken
    if count < GB:
        raise SystemExit(f"bench: the download broke off after {count} bytes")
    return time.perf_counter() - began


def command(headers: str) -> bytes:
    """A request that runs `true` and streams its events."""
    process = {"process": {"cmd": "/bin/true", "args": []}, "stdin": False}
    message = json.dumps(process).encode()
    body = b"\0" + struct.pack(">I", len(message)) + message
    user = base64.b64encode(b"user:").decode()
    return (
        f"POST /process.Process/Start HTTP/1.1\r\n{headers}Authorization: Basic {user}\r\n"
        f"Content-Type: application/connect+json\r\nConnect-Protocol-Version: 1\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


def read(headers: str) -> bytes:
    """A request for a small file."""
    return f"GET /files?path=/tmp/small HTTP/1.1\r\n{headers}\r\n".encode()


def rate(name: str, direct: Dial, through: Dial, request: bytes, each: int, most_ratio: float) -> Number:
    """Milliseconds that one request of many at once takes of the machine, through the gateway and direct."""
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(TURNS + 1):
        for dial, taken in zip((through, direct), times, strict=True):
            took = asyncio.run(all_at_once(dial, request, each))
            if turn:  # the first warms up
                taken.append(took * 1000 / (CONNECTIONS * each))
    return Number(
        name=name, measured=statistics.median(times[0]), unit="ms", reference_name="direct",
        reference=statistics.median(times[1]), most_ratio=most_ratio,
    )  # fmt: skip


async def all_at_once(dial: Dial, request: bytes, each: int) -> float:
    """Seconds that all connections take, each with its requests one after the other."""
    connections = [dial() for _ in range(CONNECTIONS)]
    try:
        for connection in connections:
            connection.setblocking(False)
        began = time.perf_counter()
        await asyncio.gather(*(asked(connection, request, each) for connection in connections))
        return time.perf_counter() - began
    finally:
        for connection in connections:
            connection.close()


async def asked(connection: socket.socket, request: bytes, each: int) -> None:
    """Ask again and again over one connection."""
    loop = asyncio.get_running_loop()
    for _ in range(each):
        await loop.sock_sendall(connection, request)
        data = b""
        while not whole(data):
            piece = await loop.sock_recv(connection, 1 << 16)
            if not piece:
                raise SystemExit(f"bench: an answer broke off: {data[:200]!r}")
            data += piece


def whole(data: bytes) -> bool:
    """Whether an answer, of a known length or in chunks, has come to its end."""
    head, found, body = data.partition(b"\r\n\r\n")
    if not found:
        return False
    if not head.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"bench: {head[:200]!r}")
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return len(body) >= int(line.partition(b":")[2])
    return body.endswith(b"\r\n0\r\n\r\n")


def idle(through: Dial) -> Number:
    """Memory of the server for each connection that asked once and stays."""
    connections = []
    try:
        before = resident_mb()
        for _ in range(IDLE):
            connection = through()
            connections.append(connection)
            connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            connection.recv(4096)
        grown_kb = (resident_mb() - before) * 1000 / IDLE
    finally:
        for connection in connections:
            connection.close()
    return Number(name=f"an idle connection, of {IDLE}", measured=grown_kb, unit="kB", promise=32)


def server_pid() -> int:
    """The server that this process started."""
    for pid in all_pids():
        if "atoll.server" in command_line(pid):
            status = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            if int(status[1]) == os.getpid():
                return pid
    raise SystemExit("bench: the server has gone")


def resident_mb() -> float:
    """The server's memory now."""
    return status_mb("VmRSS:")


def peak_mb() -> float:
    """The most memory that the server ever had."""
    return status_mb("VmHWM:")


def status_mb(name: str) -> float:
    """A line of the server's status."""
    lines = Path(f"/proc/{server_pid()}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6
