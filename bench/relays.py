"""A guest, its relay and edge, and a server, in namespaces of their own; or a plain relay in the relay's place."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.integration.network.nameserver import knowing
from tests.integration.network.test_network_policies import address_of
from tests.integration.network.testbed import PUBLIC, NetworkTestbed
from tests.integration.network.web import certified

from atoll.host import edge_path, in_netns
from atoll.network import EdgeProgram, Grant, Inspection, filters, namespaces, nftables, pins_of
from atoll.secrets import home_authority
from atoll.types import Policy, Rule

NAME = "api.example.com"
_PIECE_BYTES = 1 << 18
_SERVED = {"hello": "raw", "flood": "raw", "requests2": "web2"}
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Asked:
    """What clients did, and the processor time that it took the relay's process and the edge."""

    count: int
    bytes: int
    median_ms: float
    relay_ms: float
    edge_ms: float

    @property
    def processor_ms(self) -> float:
        """The processor time of both."""
        return self.relay_ms + self.edge_ms


class Stage:
    """Clients inside, a server outside, and this process between them, with an edge or without."""

    def __init__(self, load: Path, inside: Path, ports: dict[str, int], roots: Path) -> None:
        self._load = load
        self._inside = inside
        self._roots = roots
        self.ports = ports
        self.address = PUBLIC
        self.relay_pid: int | None = None
        self.edge_pid: int | None = None

    def ask(self, kind: str, *, lines: int = 1, for_s: float = 3.0, most: int = 1 << 30) -> Asked:
        """Have clients ask for a while. Call it in a thread: the relay may run in this one."""
        port = self.ports[_SERVED.get(kind, "web")]
        argv = [str(self._load), "ask", "-kind", kind, "-to", f"{self.address}:{port}", "-name", NAME]
        argv += ["-roots", str(self._roots), "-lines", str(lines), "-for", f"{for_s}s", "-most", str(most)]
        pipe = subprocess.PIPE
        with in_netns(
            self._inside, lambda: subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True)
        ) as asking:
            assert asking.stdin is not None and asking.stdout is not None
            if asking.stdout.readline() != "begun\n":
                raise RuntimeError(f"the clients of {kind} do not begin")
            before = self._used_ms()
            asking.stdin.write("go\n")
            asking.stdin.flush()
            told: dict[str, Any] = json.loads(asking.stdout.readline())
            relay_ms, edge_ms = (now - then for now, then in zip(self._used_ms(), before, strict=True))
        return Asked(told["count"], told["bytes"], told["median_ms"], relay_ms, edge_ms)

    def _used_ms(self) -> tuple[float, float]:
        """The processor time so far of this process with its relay, and of its edge."""
        return time.process_time() * 1000 + _used_ms(self.relay_pid), _used_ms(self.edge_pid)


def resident_mb(pid: int | None) -> float:
    """The resident memory of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) * 1024 / 1e6


def _used_ms(pid: int | None) -> float:
    if pid is None:
        return 0.0
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_MS


@contextmanager
def _served(load: Path, directory: Path) -> Iterator[tuple[dict[str, int], str]]:
    """Run the server; its ports and the authority that it is to be trusted by."""
    outside = home_authority(directory / "outside.pem")
    certificate = certified(outside, [NAME], directory / "server.pem")
    argv = [str(load), "serve", str(certificate)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None and server.stdin is not None
        yield json.loads(server.stdout.readline()), outside.certificate
        server.stdin.close()


@asynccontextmanager
async def ruled(load: Path, directory: Path, rules: int) -> AsyncIterator[tuple[Stage, Stage]]:
    """A guest with our relay: one whose connections stay in it, and one whose requests go through the edge.

    Args:
        rules: How many rules about requests the second one has; the last one allows.
    """
    testbed = NetworkTestbed(directory)
    with _served(load, directory) as (ports, roots):
        home = home_authority(directory / "home.pem")
        config = {"ca_certificate": home.certificate, "ca_key": home.key, "roots": roots}
        edges: asyncio.Queue[int] = asyncio.Queue()
        started = lambda pid, _: edges.put_nowait(pid)  # noqa: E731
        program = EdgeProgram(lambda: (str(edge_path()),), lambda: config, directory / "edge.sock", started)
        async with (
            knowing({NAME: PUBLIC}) as (_, nameserver),
            testbed.guest(lambda: [nameserver]) as guest,
        ):
            relay = guest.link.guest.relay
            inspection = Inspection(program, relay)
            try:
                deep = [
                    Rule(
                        hosts=(NAME,), ports=(ports["web"],), methods=("GET",), paths=(f"/repos/{number}/**",)
                    )
                    for number in range(rules - 1)
                ]
                policy = Policy(
                    rules=(
                        Rule(hosts=(NAME,), ports=(ports["raw"],)),
                        *deep,
                        Rule(hosts=(NAME,), ports=(ports["web"], ports["web2"]), methods=("GET",)),
                    )
                )
                guest.link.inspect(inspection, "bench", Grant(policy))
                guest.link.set_policy(policy)
                (directory / "home.crt").write_text(home.certificate)
                stage = Stage(load, guest.link.netns, ports, directory / "home.crt")
                stage.address = await address_of(guest, NAME)
                stage.edge_pid = await edges.get()
                fast = Stage(load, guest.link.netns, ports, directory / "home.crt")
                fast.address = stage.address
                fast.relay_pid = stage.relay_pid = relay.pid
                yield fast, stage
            finally:
                await inspection.aclose()


@contextmanager
def plain(load: Path, directory: Path) -> Iterator[Stage]:
    """The same place with a plain relay of threads that copy."""
    with _served(load, directory) as (ports, roots):
        pins = pins_of(directory, "plain")
        sockets = namespaces.make(pins)
        try:
            in_netns(pins.inner, lambda: nftables.delete_table(socket.AF_INET, filters.TABLE))
            (directory / "outside.crt").write_text(roots)
            sockets.relay.setblocking(True)
            threading.Thread(target=_relay, args=(sockets.relay,), daemon=True).start()
            yield Stage(load, pins.inner, ports, directory / "outside.crt")
        finally:
            with contextlib.suppress(OSError):
                sockets.relay.shutdown(socket.SHUT_RDWR)
            sockets.close()
            namespaces.remove(pins)


def _relay(listener: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while True:
            guest, _ = listener.accept()
            port = int.from_bytes(guest.getsockopt(socket.SOL_IP, 80, 16)[2:4])  # SO_ORIGINAL_DST
            remote = socket.create_connection((PUBLIC, port))
            for one, other in ((guest, remote), (remote, guest)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                threading.Thread(target=_copy, args=(one, other), daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    buffer = memoryview(bytearray(_PIECE_BYTES))
    with contextlib.suppress(OSError):
        while count := source.recv_into(buffer):
            target.sendall(buffer[:count])
        target.shutdown(socket.SHUT_WR)
