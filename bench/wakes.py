"""Wakes: by the gateway, many at once, and by data; and what a sandbox costs that runs and does nothing."""

from __future__ import annotations

import contextlib
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from atoll import Hosting, Lifecycle, Sandbox
from atoll.host import Home
from atoll.types import HOST_NAME, Policy
from bench.footprint import all_pids, command_line, is_machine
from bench.measure import Number
from bench.rooms import make_dirty, supervisor
from bench.served import served

ROUNDS = 40
FEW, MANY = 10, 50
AT_ONCE_ROUNDS = 3
IDLE = 4
IDLE_S = 20.0
SETTLE_S = 5.0
# The work after a suspend's answer, of which a wake that comes later feels nothing.
END_S = 0.5
# It answers at once: what is measured is the way to it.
SERVER = """
import socket
with socket.create_server(("0.0.0.0", 8000)) as listener:
    while True:
        with listener.accept()[0] as connection:
            connection.recv(4096)
            connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\nConnection: close\\r\\n\\r\\n")
"""
ECHO = f"""
import socket
connection = socket.create_connection(("{HOST_NAME}", %d))
while line := connection.recv(100):
    connection.sendall(line)
"""


def numbers() -> list[Number]:
    """Measure."""
    with supervisor(pool_size=0):
        return [*by_the_gateway(), *dirty(), *at_once(), by_data(), idle()]


def by_the_gateway() -> list[Number]:
    """From a request to the first byte of its answer, of a server in a paused sandbox and in one that runs."""
    with served() as variables, Sandbox.create(hosting=Hosting(team="default")) as sandbox:
        sandbox.processes.start(["python3", "-c", SERVER], stream=False)
        sandbox.ports.wait(8000)
        host, _, port = variables["E2B_API_URL"].rpartition("//")[2].rpartition(":")
        request = (
            f"HEAD / HTTP/1.1\r\nHost: localhost\r\nE2b-Sandbox-Id: {sandbox.id}\r\n"
            "E2b-Sandbox-Port: 8000\r\nConnection: close\r\n\r\n"
        ).encode()

        def first_byte() -> None:
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(request)
                if not connection.recv(4096).startswith(b"HTTP/1.1 200"):
                    raise SystemExit("bench: the gateway does not lead to the server inside")

        running_ms = times_ms(first_byte, lambda: None)
        paused_ms = times_ms(first_byte, sandbox.pause)
    return [
        Number(
            name="paused, to the first byte through the gateway, p95", measured=p95(paused_ms), promise=5,
            reference_name="running", reference=p95(running_ms),
        )
    ]  # fmt: skip


def dirty() -> list[Number]:
    """From sleep with 64 MiB of random bytes in use to the first result."""
    with Sandbox.create() as sandbox:
        make_dirty(sandbox)

        def asleep() -> None:
            sandbox.suspend()
            time.sleep(END_S)

        wakes_ms = times_ms(lambda: sandbox.exec(["true"]).check(), asleep)
    return [
        Number(
            name="wake to first result, 64 MiB dirty, p50", measured=statistics.median(wakes_ms), promise=60
        ),
        Number(name="wake to first result, 64 MiB dirty, p95", measured=p95(wakes_ms), promise=120),
    ]


def at_once() -> list[Number]:
    """Until each of so many sleepers, all woken at the same moment, has answered."""
    with contextlib.ExitStack() as stack, ThreadPoolExecutor(MANY) as threads:
        sleepers = [stack.enter_context(Sandbox.create()) for _ in range(MANY)]
        for each in sleepers:
            each.exec(["true"]).check()
        found = []
        for count, promise in ((FEW, 800), (MANY, 4000)):
            taken = []
            for _ in range(AT_ONCE_ROUNDS):
                for each in sleepers[:count]:
                    each.suspend()
                time.sleep(END_S)
                began = time.perf_counter()
                list(threads.map(lambda each: each.exec(["true"]).check(), sleepers[:count]))
                taken.append((time.perf_counter() - began) * 1000)
            name = f"{count} wakes at once, to the last first result"
            found.append(Number(name=name, measured=statistics.median(taken), promise=promise))
        return found


def by_data() -> Number:
    """From a line that a server says to a sleeper's answer."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        network = Policy(rules=(Policy.expose_host(port),))
        with Sandbox.create(network=network, lifecycle=Lifecycle(wake_on_data=True)) as sandbox:
            sandbox.processes.start(["python3", "-c", ECHO % port], stream=False)
            server = listener.accept()[0]
            with server:

                def said() -> None:
                    server.sendall(b"are you there\n")
                    server.recv(100)

                def asleep() -> None:
                    sandbox.suspend()
                    time.sleep(END_S)

                handled_ms = statistics.median(times_ms(said, asleep, rounds=8))
    return Number(name="data from outside, until a sleeper has handled it", measured=handled_ms, promise=300)


def idle() -> Number:
    """The processor time of a sandbox in which nothing runs."""
    with contextlib.ExitStack() as stack:
        for _ in range(IDLE):
            stack.enter_context(Sandbox.create()).exec(["true"]).check()
        time.sleep(SETTLE_S)
        before = processor_ms()
        time.sleep(IDLE_S)
        used_ms = (processor_ms() - before) / IDLE_S / IDLE
    return Number(name="an idle running sandbox, processor in a second", measured=used_ms, promise=1)


def times_ms(action: Callable[[], object], before: Callable[[], object], rounds: int = ROUNDS) -> list[float]:
    """Times of an action; ``before`` is called before each, untimed."""
    found = []
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        action()
        found.append((time.perf_counter() - began) * 1000)
    return found


def p95(times: list[float]) -> float:
    """What 95 of 100 are below."""
    return statistics.quantiles(times, n=20)[-1]


def processor_ms() -> float:
    """What the machines of the home have used of the processors since they began."""
    home = Home.default()
    return sum(thread_ms(pid) for pid in all_pids() if is_machine(command_line(pid), home))


def thread_ms(pid: int) -> float:
    """What the threads of a process have used, from the scheduler, which counts in nanoseconds."""
    return sum(float(line.split()[0]) / 1e6 for line in schedule(pid))


def schedule(pid: int) -> Iterator[str]:
    """A line for each thread."""
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):  # it has just ended
            yield task.read_text()
