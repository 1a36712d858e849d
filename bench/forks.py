"""Many forks at once: of a process with 64 MiB dirty, and of one that has imported numpy, each asked afterwards."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from atoll import Sandbox
from bench.measure import Number
from bench.rooms import make_dirty, supervisor

ROUNDS = 3
DIRTY_COPIES = 20
NUMPY_COPIES = 100
ASKED_AT_ONCE = 4
PORT = 7000
SERVER = f"""
import numpy, socket
block = numpy.arange(100_000, dtype=float)
listener = socket.create_server(("", {PORT}))
while True:
    connection = listener.accept()[0]
    connection.sendall(str(float(block.sum())).encode())
    connection.close()
"""
SUM = str(float(sum(range(100_000))))


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=0):
        with Sandbox.create() as sandbox:
            make_dirty(sandbox)
            dirty_s = min(forks_s(sandbox, DIRTY_COPIES)[0] for _ in range(ROUNDS))
        with Sandbox.create() as sandbox:
            start_numpy(sandbox)
            numpy_s, numpy_mib = forks_s(sandbox, NUMPY_COPIES, port=PORT)
    return [
        Number(name=f"{DIRTY_COPIES} forks, 64 MiB dirty", measured=dirty_s, unit="s", promise=2.5),
        Number(
            name=f"{NUMPY_COPIES} forks of numpy, until all have answered",
            measured=numpy_s,
            unit="s",
            promise=8,
        ),
        Number(name="one of these forks takes", measured=numpy_mib, unit="MiB", promise=48),
    ]


def start_numpy(sandbox: Sandbox) -> None:
    """Install numpy, and have a process that has imported it listen."""
    sandbox.run("pip install -q numpy", timeout_s=600).check()
    sandbox.processes.start(["python3", "-c", SERVER])
    while sandbox.run(f"ss -tln | grep -q LISTEN.*:{PORT}").exit_code:
        time.sleep(0.1)


def forks_s(sandbox: Sandbox, count: int, *, port: int | None = None) -> tuple[float, float]:
    """Fork it, ask each copy's server if there is one, and return the seconds and the mean memory in MiB."""
    began = time.perf_counter()
    copies = sandbox.fork(count)
    try:
        if port is not None:
            with ThreadPoolExecutor(ASKED_AT_ONCE) as pool:
                list(pool.map(lambda copy: ask(copy, port), copies))
        seconds = time.perf_counter() - began
        sizes = [copy.stats().memory_bytes or 0 for copy in copies]
        return seconds, sum(sizes) / count / (1 << 20)
    finally:
        for copy in copies:
            copy.kill()
            copy.close()


def ask(copy: Sandbox, port: int) -> None:
    """Fail unless the copy's server answers what it should."""
    with copy.ports.dial(port) as connection:
        connection.settimeout(60)
        answer = connection.recv(100).decode()
    if answer != SUM:
        raise RuntimeError(f"{copy.id} answered {answer!r}")
