"""Unplug: the time from the call to the last byte that a guest which floods the network gets out."""

from __future__ import annotations

import contextlib
import socket
import statistics
import threading
import time

from atoll import Sandbox
from atoll.types import Policy
from bench.measure import WARM_UP_ROUNDS, Number
from bench.rooms import supervisor

ROUNDS = 20
FLOOD_BYTES = 8 << 20
FLOOD = """
import socket, sys
while True:
    try:
        with socket.create_connection(("host.atoll.internal", int(sys.argv[1])), 5) as connection:
            while True:
                connection.sendall(bytes(1 << 16))
    except OSError:
        pass
"""


class Sink:
    """Reads what comes, and notes when the last of it came."""

    def __init__(self, listener: socket.socket) -> None:
        self.received_bytes = 0
        self.last_s = 0.0
        self.open = 0
        self._listener = listener
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.open += 1
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 20):
                self.last_s = time.perf_counter()
                self.received_bytes += len(data)
        self.open -= 1


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=0), socket.create_server(("127.0.0.1", 0)) as listener:
        sink, port = Sink(listener), listener.getsockname()[1]
        network = Policy(rules=(Policy.expose_host(port),))
        with Sandbox.create(network=network) as sandbox:
            for _ in range(2):
                sandbox.processes.start(["python3", "-c", FLOOD, str(port)])
            times = [one_round_ms(sandbox, sink) for _ in range(WARM_UP_ROUNDS + ROUNDS)][WARM_UP_ROUNDS:]
        listener.shutdown(socket.SHUT_RDWR)
    last, frozen = zip(*times, strict=True)
    return [
        Number(
            name="unplug to the last byte of a flood, median", measured=statistics.median(last), promise=50
        ),
        Number(name="unplug to the last byte of a flood, slowest", measured=max(last)),
        Number(name="unplug of a guest that floods, until it is frozen", measured=statistics.median(frozen)),
    ]


def one_round_ms(sandbox: Sandbox, sink: Sink) -> tuple[float, float]:
    """Unplug in the middle of a flood. Returns when the last byte came, and when the call returned."""
    wanted = sink.received_bytes + FLOOD_BYTES
    while sink.received_bytes < wanted:
        time.sleep(0.005)
    began_s = time.perf_counter()
    sandbox.unplug()
    frozen_s = time.perf_counter()
    while sink.open:
        time.sleep(0.005)
    sandbox.replug()
    return (sink.last_s - began_s) * 1000, (frozen_s - began_s) * 1000
