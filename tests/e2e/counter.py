"""A program that keeps state in its memory, to tell whether a sandbox remembers."""

from __future__ import annotations

import time

from atoll import AtollError, Process, Sandbox

PORT = 7000
BOUND_S = 90.0
PROGRAM = f"""
import socket
listener = socket.create_server(("", {PORT}))
count = 0
while True:
    connection = listener.accept()[0]
    count += 1
    connection.sendall(str(count).encode())
    connection.close()
"""


def start_counter(sandbox: Sandbox) -> Process:
    """Start the counter, and wait until it answers for the first time: with 1."""
    process = sandbox.processes.start(["python3", "-c", PROGRAM])
    end = time.monotonic() + BOUND_S
    while sandbox.run(f"ss -tln | grep -q LISTEN.*:{PORT}").exit_code:
        assert time.monotonic() < end, "the counter does not listen"
    assert count(sandbox) == 1
    return process


def count(sandbox: Sandbox) -> int:
    """Ask the counter, which counts one further."""
    with sandbox.ports.dial(PORT) as connection:
        connection.settimeout(BOUND_S)
        read = b""
        while piece := connection.recv(100):
            read += piece
    return int(read)


def killed(sandbox: Sandbox) -> None:
    """Kill a sandbox, gone or not."""
    try:
        sandbox.kill()
    except AtollError:
        sandbox.close()
