"""From inside, as root: neither the host, nor a neighbour, nor the supervisor can be reached."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox
from atoll.host import Home

pytestmark = pytest.mark.twice

PROBE = Path(__file__).with_name("reach_probe.py").read_text()
MARK = "only-the-host-has-this-7f3a"
_PORTS = 4000


class Watchtower:
    """A server on all addresses of the host that says hello, and remembers who came."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        self.port: int = self._listener.getsockname()[1]
        self.visitors: list[str] = []
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, peer = self._listener.accept()
                with connection:
                    self.visitors.append(peer[0])
                    connection.sendall(b"hello")

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._thread.join(60)
        self._listener.close()


@pytest.fixture
def watchtower() -> Iterator[Watchtower]:
    made = Watchtower()
    try:
        yield made
    finally:
        made.close()


def own_addresses() -> list[str]:
    """The host's addresses, link-local ones included."""
    shown = subprocess.run(["ip", "-o", "addr"], capture_output=True, text=True, check=False).stdout
    return re.findall(r"inet6? ([0-9a-f.:]+)", shown)


def targets(port: int, home: Path, secret: Path) -> dict[str, object]:
    places = Home(home)
    known = ["127.0.0.1", "127.1.2.3", "0.0.0.0", "::1", "::ffff:127.0.0.1", "10.254.0.1", "169.254.169.254"]
    refused = ["10.0.0.1", "172.17.0.1", "192.168.0.1", "100.100.100.200", "168.63.129.16", "fd00:ec2::254"]
    addresses = [*own_addresses(), *known, *refused]
    return {
        "mark": MARK,
        "addresses": [(address, port) for address in dict.fromkeys(addresses)],
        "paths": [str(secret), str(home / "supervisor.log"), "/proc/1/environ", "/etc/shadow"],
        "sockets": [str(places.api_socket), str(places.dial_socket), "/run/docker.sock"],
        "host_names": [
            str(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and len(one.name) > 3
        ],
    }


def test_nothing_of_the_host_is_reached(module_home: Path, watchtower: Watchtower, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(MARK)
    with socket.create_connection(("127.0.0.1", watchtower.port), timeout=60) as control:
        assert control.recv(5) == b"hello"
    told = json.dumps(targets(watchtower.port, module_home, secret))
    with Sandbox.create() as sandbox:
        result = sandbox.exec(["python3", "-c", PROBE, told], user="root", timeout_s=250)
        assert result.exit_code == 0, result.stderr
        # Inside, a program reaches its own loopback: that is its own machine.
        assert json.loads(result.stdout) == []
        sandbox.kill()
    assert watchtower.visitors == ["::ffff:127.0.0.1"]


SHOUT = """
import socket, sys
server = socket.create_server(("", 4000))
print("up", flush=True)
while True:
    server.accept()[0].sendall(b"hello")
"""
LISTEN = """
import socket, sys
for address in ("10.254.0.1", "10.254.0.3", "10.254.0.6", *sys.argv[1:]):
    with socket.socket() as probe:
        probe.settimeout(3)
        try:
            probe.connect((address, 4000))
            probe.sendall(b"x")
            print(address, probe.recv(5))
        except OSError:
            continue
"""


def test_a_neighbour_is_not_reached(module_home: Path) -> None:
    with Sandbox.create() as one, Sandbox.create() as other:
        server = one.processes.start(["python3", "-c", SHOUT], stream=True)
        assert next(iter(server)).text == "up\n"
        with one.ports.dial(_PORTS) as connection:
            connection.settimeout(60)
            assert connection.recv(5) == b"hello"
        server.close()
        result = other.exec(["python3", "-c", LISTEN, *own_addresses()], user="root", timeout_s=250)
        assert (result.exit_code, result.stdout) == (0, ""), result.stderr
        # Both have this address; a connection to it ends in the guest that makes it.
        assert "hello" not in other.exec(["curl", "-sm", "5", "10.254.0.2:4000"]).stdout
        one.kill()
        other.kill()


BECOME_ROOT = """
import json, socket, urllib.request
def ask(source, address):
    with socket.socket() as caller:
        caller.settimeout(20)
        caller.setsockopt(socket.SOL_IP, 15, 1)
        if source:
            caller.bind((source, 0))
        caller.connect((address, 49983))
        body = json.dumps({"argv": ["id"], "user": "root"})
        caller.sendall(
            b"POST /atoll/processes HTTP/1.1\\r\\nhost: x\\r\\ncontent-type: application/json\\r\\n"
            + f"content-length: {len(body)}\\r\\n\\r\\n{body}".encode()
        )
        return caller.recv(65536)
for source in (None, "127.0.0.1", "10.254.0.2", "10.254.0.1"):
    for address in ("127.0.0.1", "10.254.0.2"):
        try:
            if b"200 OK" in ask(source, address):
                print("root by way of", address)
        except OSError:
            continue
"""


def test_a_program_inside_cannot_use_the_agent_to_become_root(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        result = sandbox.exec(["python3", "-c", BECOME_ROOT])
        assert (result.exit_code, result.stdout) == (0, ""), result.stderr
        sandbox.kill()
