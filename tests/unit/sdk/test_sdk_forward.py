from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable

import anyio
import pytest
from tests.unit.sdk.fakes import FakeSupervisor

from atoll import AsyncSandbox, Sandbox
from atoll.errors import DeadlineError, InvalidSpecError, SandboxNotFoundError, StateError
from atoll.protocol import ErrorBody
from atoll.sdk._listening import cannot_listen


def serve(supervisor: FakeSupervisor, answer: Callable[[bytes], bytes]) -> list[threading.Thread]:
    """Let each dial reach a thread that reads to the end and then answers."""
    threads: list[threading.Thread] = []

    def work(far: socket.socket) -> None:
        with far, contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the forward was left
            read = b""
            while data := far.recv(65536):
                read += data
            far.sendall(answer(read))

    def dial(_: int) -> socket.socket:
        near, far = socket.socketpair()
        threads.append(threading.Thread(target=work, args=(far,)))
        threads[-1].start()
        return near

    supervisor.dial = dial
    return threads


def ask(port: int, data: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as client:
        client.sendall(data)
        client.shutdown(socket.SHUT_WR)
        read = b""
        while piece := client.recv(65536):
            read += piece
        return read


def test_a_forwarded_connection_keeps_its_half_close(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    threads = serve(supervisor, lambda read: hashlib.sha256(read).digest())
    data = os.urandom(3_000_000)
    with sandbox.ports.forward(8000) as forward:
        assert [ask(forward.port, data) for _ in range(3)] == [hashlib.sha256(data).digest()] * 3
        port = forward.port
    for thread in threads:
        thread.join(60)
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=60)


def test_a_connection_whose_dial_fails_is_closed(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.dial_error = ErrorBody(code="agent_failed", message="nobody listens")
    with (
        sandbox.ports.forward(8000) as forward,
        socket.create_connection(("127.0.0.1", forward.port), timeout=60) as client,
    ):
        with contextlib.suppress(ConnectionResetError):
            assert client.recv(1) == b""


def test_leaving_a_forward_ends_its_open_connections(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    threads = serve(supervisor, lambda read: read)
    with sandbox.ports.forward(8000) as forward:
        client = socket.create_connection(("127.0.0.1", forward.port), timeout=60)
        client.sendall(b"hello")
    with client:
        with contextlib.suppress(ConnectionResetError):
            while client.recv(65536):
                pass
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def test_a_dial_that_succeeds_while_a_forward_is_left_leaves_nothing(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    leaving = threading.Event()
    dialled: list[socket.socket] = []

    def dial(_: int) -> socket.socket:
        assert leaving.wait(60)
        near, far = socket.socketpair()
        dialled.append(far)
        return near

    supervisor.dial = dial
    before = set(threading.enumerate())
    with sandbox.ports.forward(8000) as forward:
        client = socket.create_connection(("127.0.0.1", forward.port), timeout=60)
        while not supervisor.dials:
            time.sleep(0.01)
        timer = threading.Timer(0.2, leaving.set)
        timer.start()
    timer.join()
    # The far end never ends by itself.
    assert not [thread for thread in set(threading.enumerate()) - before if thread.name == "atoll"]
    with client, dialled[0] as far:
        far.settimeout(60)
        assert far.recv(1) == b""


def test_the_async_forward_does_the_same(supervisor: FakeSupervisor) -> None:
    threads = serve(supervisor, lambda read: read[::-1])

    async def work() -> bytes:
        async with await AsyncSandbox.create() as sandbox, sandbox.ports.forward(8000) as forward:
            return await anyio.to_thread.run_sync(ask, forward.port, b"abc" * 100_000)

    assert anyio.run(work) == b"cba" * 100_000
    for thread in threads:
        thread.join(60)


def test_a_dialled_socket_is_connected_and_the_callers_own(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    serve(supervisor, lambda read: read)
    with sandbox.ports.dial(8000) as connection:
        connection.sendall(b"echo")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100, socket.MSG_WAITALL) == b"echo"
    assert supervisor.dials[-1][1] == 8000


def test_a_forward_has_a_url_while_it_is_open(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    forward = sandbox.ports.forward(8000)
    with pytest.raises(StateError, match="not open"):
        _ = forward.url
    with forward:
        assert forward.url == f"http://127.0.0.1:{forward.port}"


def test_a_port_is_waited_for_until_something_listens(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    threads = serve(supervisor, lambda read: read)
    supervisor.dial_error = ErrorBody(code="not_found", message="nothing listens on port 8000")
    opened = threading.Timer(0.1, setattr, (supervisor, "dial_error", None))
    opened.start()
    sandbox.ports.wait(8000, timeout_s=60)
    opened.join()
    for thread in threads:
        thread.join(60)
    assert len(supervisor.dials) > 1
    assert {port for _, port in supervisor.dials} == {8000}


def test_the_wait_for_a_port_ends(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    supervisor.dial_error = ErrorBody(code="not_found", message="nothing listens on port 8000")
    with pytest.raises(DeadlineError, match=r"port 8000 within 0\.1 s"):
        sandbox.ports.wait(8000, timeout_s=0.1)
    supervisor.dial_error = ErrorBody(code="sandbox_not_found", message="gone")
    with pytest.raises(SandboxNotFoundError):
        sandbox.ports.wait(8000)
    for timeout_s in (0, -1, "1"):
        with pytest.raises(InvalidSpecError):
            sandbox.ports.wait(8000, timeout_s=timeout_s)  # type: ignore[arg-type]
    with pytest.raises(InvalidSpecError):
        sandbox.ports.wait(0)


def test_a_local_port_that_is_taken_is_told_with_another_one(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(InvalidSpecError, match=f"port {port} of this machine is taken") as raised:
            sandbox.ports.forward(8000, port).__enter__()
    assert "such as" in str(raised.value.hint)


@pytest.mark.parametrize(
    ("port", "first_open", "suggested"), [(80, 1024, 8080), (443, 1024, 8443), (80, 9000, 0)]
)
def test_a_local_port_only_for_root_is_told_with_one_for_everybody(
    port: int, first_open: int, suggested: int
) -> None:
    told = cannot_listen(port, PermissionError(errno.EACCES, "Permission denied"), first_open)
    assert told.message == f"port {port} of this machine needs root: ports below {first_open} do"
    assert told.hint == f"give another local port, such as {suggested}"


def test_another_trouble_with_a_local_port_is_told_in_the_words_of_the_system() -> None:
    told = cannot_listen(8000, OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address"))
    assert "port 8000 of this machine cannot be used: Cannot assign" in str(told)
