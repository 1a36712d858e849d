"""What suspended sandboxes hold on the host, and that they wake as if they had held everything."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.holdings import holdings
from tests.waiting import BOUND_S, until

from atoll import Sandbox, Supervisor
from atoll.errors import FileMissingError
from atoll.types import HOST_NAME, Policy

pytestmark = pytest.mark.twice

# In Python: the address of a name stands for it, and the policy resets a connection to a port that it does not expose.
LOOK = f"""
import fcntl, socket
print(open("/etc/resolv.conf").read())
print(socket.gethostbyname("{HOST_NAME}"))
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
    probe.connect(("192.0.2.1", 9))
    print(probe.getsockname()[0])
    for _, name in socket.if_nameindex():
        print(name, fcntl.ioctl(probe, 0x8927, name.encode().ljust(40, b"\\0"))[18:24].hex())  # its MAC
for port in PORTS:
    try:
        with socket.create_connection(("{HOST_NAME}", port)) as connection:
            print("connected", connection.recv(1) if port == REFUSED else "")
    except OSError as error:
        print(type(error).__name__)
"""
HOLD = f"""
import pathlib, socket, sys
state = pathlib.Path("/tmp/state")
with socket.create_connection(("{HOST_NAME}", int(sys.argv[1]))) as connection:
    state.write_text("connected")
    try:
        while data := connection.recv(100):
            state.write_text(data.decode())
        state.write_text("ended")
    except OSError as error:
        state.write_text(type(error).__name__)
"""


# The namespaces of the links that are kept ready.
SPARES = 4


@pytest.fixture(scope="module")
def without_pool() -> Iterator[None]:
    """Have supervisors keep no warm machine, whose link would count too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATOLL_POOL_SIZE", "0")
        yield


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A server on this host's loopback interface stands for the outside."""
    with socket.create_server(("127.0.0.1", 0)) as made:
        made.settimeout(BOUND_S)
        yield made


def port_of(listener: socket.socket) -> int:
    port: int = listener.getsockname()[1]
    return port


def may_reach(listener: socket.socket, *others: int) -> Policy:
    return Policy(rules=(Policy.expose_host(port_of(listener), *others),))


def held() -> tuple[float, float, float]:
    """The processes, namespaces and descriptors of the home."""
    found = holdings()
    return found["processes"], found["namespaces"], found["descriptors"]


def test_a_suspended_sandbox_holds_no_process_namespace_or_descriptor(without_pool: None, home: Path) -> None:
    with Sandbox.create() as first:
        first.exec(["true"]).check()
        first.suspend()
        first.close()
        until(lambda: held()[1] == SPARES and held() == held())
        alone = held()
        others = [Sandbox.create() for _ in range(4)]
        for each in others:
            each.exec(["true"]).check()
        until(lambda: held()[1] >= alone[1] + 8)
        for each in others:
            each.suspend()
            each.close()
        until(lambda: all(now <= before for now, before in zip(held(), alone, strict=True)))
        assert others[0].run("echo awake").stdout == "awake\n"
        for each in others:
            each.kill()


def test_a_sleeper_wakes_with_the_same_address_names_and_policy(
    without_pool: None, module_home: Path, listener: socket.socket
) -> None:
    # a connection that only the guest has closed would keep the link for a while
    threading.Thread(target=close_each, args=(listener,), daemon=True).start()
    with Sandbox.create(network=may_reach(listener)) as sandbox:
        program = LOOK.replace("PORTS", f"({port_of(listener)}, REFUSED)").replace("REFUSED", "9")
        before = sandbox.exec(["python3", "-c", program]).check().stdout
        assert before.split()[-2:] == ["connected", "ConnectionResetError"]
        sandbox.suspend()
        until(lambda: not holds_link(sandbox))
        assert sandbox.exec(["python3", "-c", program]).check().stdout == before


def test_a_connection_to_a_forwarded_port_wakes_a_sleeper(without_pool: None, module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.processes.start(["python3", "-m", "http.server", "8000"])
        sandbox.ports.wait(8000, timeout_s=BOUND_S)
        with sandbox.ports.forward(8000) as forward:
            sandbox.suspend()
            until(lambda: not holds_link(sandbox))
            with socket.create_connection(("127.0.0.1", forward.port), timeout=BOUND_S) as connection:
                connection.sendall(b"GET / HTTP/1.0\r\n\r\n")
                assert connection.recv(100).startswith(b"HTTP/1.0 200")
            assert sandbox.info().state == "running"


def test_an_open_connection_is_kept_over_a_sleep_and_its_end_with_the_supervisor_is_told(
    without_pool: None, module_home: Path, listener: socket.socket
) -> None:
    with Sandbox.create(network=may_reach(listener)) as sandbox:
        sandbox.files.write("hold.py", HOLD)
        sandbox.processes.start(["python3", "hold.py", str(port_of(listener))])
        server, _ = listener.accept()
        with server:
            until(lambda: state_of(sandbox) == "connected")
            sandbox.suspend()
            server.sendall(b"while you slept")
            until(lambda: state_of(sandbox) == "while you slept")
            sandbox.suspend()
            assert holds_link(sandbox)
            Supervisor.stop()
            until(lambda: state_of(sandbox) == "ConnectionResetError")


def close_each(listener: socket.socket) -> None:
    """Accept connections and close them until the listener is closed."""
    with contextlib.suppress(OSError):
        while True:
            listener.accept()[0].close()


def state_of(sandbox: Sandbox) -> str:
    with contextlib.suppress(FileMissingError):  # it connects, and writes then
        return sandbox.files.read("/tmp/state")  # noqa: S108
    return ""


def holds_link(sandbox: Sandbox) -> bool:
    """Whether a sleeping sandbox holds namespaces. The only other ones are spares."""
    return holdings()["namespaces"] > SPARES
