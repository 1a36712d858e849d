"""Unplugging real sandboxes: guests that resist, and a supervisor that hangs or is killed."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import homes
from tests.e2e.command_line import ATOLL, LONG_S, atoll, said
from tests.e2e.counter import count, start_counter
from tests.waiting import stop, until

from atoll import Limits, Sandbox, Secrets, Supervisor
from atoll.errors import UnpluggedError
from atoll.host import Home, children_by_parent
from atoll.types import Policy, Rule

# It sends all that it can, keeps its processors busy in its programs and in its kernel, and takes memory.
RESISTS = """
import os, socket, sys, threading
def send():
    while True:
        try:
            with socket.create_connection(("host.atoll.internal", int(sys.argv[1])), 5) as connection:
                while True:
                    connection.sendall(bytes(1 << 16))
        except OSError:
            pass
def burn():
    while True:
        os.stat("/")
for work in (send, send, burn):
    if os.fork() == 0:
        work()
held = []
while True:
    if len(held) < 120:
        held.append(os.urandom(1 << 20))
"""

FLOODS = """
import socket, sys, time
while True:
    try:
        with socket.create_connection(("host.atoll.internal", int(sys.argv[1])), 5) as connection:
            while True:
                connection.sendall(bytes(1 << 16))
    except OSError:
        time.sleep(0.1)
"""


class Sink:
    """A server on this host's loopback that counts what sandboxes send."""

    def __init__(self, listener: socket.socket) -> None:
        self.port = listener.getsockname()[1]
        self.received_bytes = 0
        self.open = 0
        self._listener = listener
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                self.open += 1
                threading.Thread(target=self._read, args=(connection,), daemon=True).start()

    def _read(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while data := connection.recv(1 << 20):
                self.received_bytes += len(data)
        self.open -= 1


@pytest.fixture
def sink() -> Iterator[Sink]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield Sink(listener)
        listener.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def resisting(home: Path, sink: Sink, name: str) -> Iterator[Sandbox]:
    """A sandbox with a counter whose guest does all that it can, and is at it."""
    network = Policy(rules=(Policy.expose_host(sink.port),))
    with Sandbox.create(name=name, network=network, limits=Limits(memory_mib=512)) as sandbox:
        start_counter(sandbox)
        sandbox.files.write("/tmp/resists.py", RESISTS)
        sandbox.processes.start(["python3", "/tmp/resists.py", str(sink.port)])
        until(lambda: sink.received_bytes > 1 << 20)
        until(lambda: not stands_still(home))
        yield sandbox


def used_ticks(home: Path) -> int:
    """The processor time of all machines of a home, with all that they have started."""
    found = [line.split(": ", 1) for line in homes.processes_of(Home(home))]
    waiting = [int(pid) for pid, command in found if command.startswith("runsc-sandbox")]
    children, total = children_by_parent(), 0
    while waiting:
        pid = waiting.pop()
        waiting += children.get(pid, [])
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
            total += int(fields[11]) + int(fields[12])
    return total


def stands_still(home: Path) -> bool:
    """Whether no guest of a home is busy. Machines that wait for use do a little now and then."""
    before = used_ticks(home)
    time.sleep(0.5)
    return used_ticks(home) - before <= 5


def supervisor_pid() -> int:
    hello = Supervisor.hello()
    assert hello is not None
    return hello.pid


def end_at_once(pid: int) -> None:
    ended = os.pidfd_open(pid)
    try:
        os.kill(pid, signal.SIGKILL)
        # Not before its last thread is gone: until then its sockets still take connections.
        assert select.select([ended], [], [], 60)[0]
    finally:
        os.close(ended)


def assert_refused(sandbox: Sandbox, home: Path) -> None:
    """No use wakes it, each says why, and looking at it works."""
    for use in (
        lambda: sandbox.run("true"),
        lambda: sandbox.files.read("/etc/hostname"),
        lambda: sandbox.ports.dial(7000),
        lambda: sandbox.resume(),
        lambda: sandbox.set_lease(60),
    ):
        with pytest.raises(UnpluggedError, match="it resists"):
            use()
    info = sandbox.info()
    assert info.unplugged is not None
    assert (info.state, info.unplugged.reason, info.unplugged.ran) == ("paused", "it resists", True)
    assert "unplugged: it resists" in "".join(sandbox.logs())
    assert sandbox.stats().state == "paused"
    until(lambda: stands_still(home))


def test_a_guest_that_resists_is_cut_off_and_frozen_and_goes_on_where_it_was(home: Path, sink: Sink) -> None:
    with resisting(home, sink, "resists") as sandbox:
        sandbox.unplug("it resists")
        until(lambda: sink.open == 0)
        received = sink.received_bytes
        assert_refused(sandbox, home)
        (copy,) = sandbox.fork(1)
        with copy:
            assert copy.info().network == "none"
            assert copy.run("cat /proc/uptime").exit_code == 0
        sandbox.suspend()
        with pytest.raises(UnpluggedError):
            sandbox.run("true")
        assert sink.received_bytes == received
        sandbox.replug()
        assert count(sandbox) == 2
        until(lambda: sink.received_bytes > received)


def test_it_stays_unplugged_when_its_supervisor_is_killed(home: Path, sink: Sink) -> None:
    with resisting(home, sink, "kept") as sandbox:
        sandbox.unplug("it resists")
        end_at_once(supervisor_pid())
        assert_refused(sandbox, home)
        until(lambda: sink.open == 0)
        received = sink.received_bytes
        sandbox.replug()
        assert count(sandbox) == 2
        until(lambda: sink.received_bytes > received)


@pytest.mark.parametrize("killed", [False, True])
def test_a_supervisor_that_hangs_is_not_needed(home: Path, sink: Sink, killed: bool) -> None:
    with resisting(home, sink, "work") as sandbox:
        pid = supervisor_pid()
        stop(pid)
        try:
            done = atoll("unplug", "work", "--reason", "it resists", "--json")
            assert b"did not answer within 2 s" in done.stderr
            assert done.returncode == 0, done.stderr
            (told,) = json.loads(done.stdout)
            assert told == {
                "sandbox_id": sandbox.id,
                "name": "work",
                "cut": True,
                "frozen": True,
                "marked": True,
                "problems": [],
            }
            until(lambda: stands_still(home))
            until(lambda: is_quiet(sink))  # the kernel delivers what it has
            received = sink.received_bytes
            if killed:
                end_at_once(pid)
        finally:
            if not killed:
                os.kill(pid, signal.SIGCONT)
        until(lambda: sandbox.info().unplugged is not None and sandbox.info().state == "paused")
        assert_refused(sandbox, home)
        until(lambda: sink.open == 0)
        # The relay had read that before, and a resumed one passes on nothing else.
        assert sink.received_bytes - received <= 1 << 22
        sandbox.replug()
        assert count(sandbox) == 2


def is_quiet(sink: Sink) -> bool:
    """Whether nothing more arrives."""
    before = sink.received_bytes
    time.sleep(0.3)
    return sink.received_bytes == before


def test_what_the_edge_has_taken_does_not_go_out_while_the_supervisor_hangs(home: Path, sink: Sink) -> None:
    port = (sink.port,)
    # Another protocol than HTTP passes through the edge where a rule about requests comes first.
    rules = (
        Rule(hosts=("host.atoll.internal",), ports=port, methods=("GET",)),
        Rule(hosts=("host.atoll.internal",), ports=port),
    )
    deep = Policy(rules=rules)
    with Sandbox.create(name="flood", network=deep) as sandbox, Sandbox.create(network=deep) as other:
        for each in (sandbox, other):
            each.files.write("/tmp/flood.py", FLOODS)
            each.processes.start(["python3", "/tmp/flood.py", str(sink.port)])
        until(lambda: sink.open == 2 and sink.received_bytes > 1 << 22)
        pid = supervisor_pid()
        stop(pid)
        try:
            (told,) = json.loads(said("unplug", "flood", "--json"))
            assert (told["cut"], told["frozen"], told["problems"]) == (True, True, [])
            # The supervisor still stands: the end of the edge alone has reset them.
            until(lambda: sink.open == 0)
            received = sink.received_bytes
        finally:
            os.kill(pid, signal.SIGCONT)
        until(lambda: sandbox.info().unplugged is not None)
        # The other one's connection comes back, by the next edge.
        until(lambda: sink.open == 1 and sink.received_bytes > received)


def test_a_rule_by_address_unplugs(module_home: Path) -> None:
    trap = Rule(name="a trap", action="unplug", addresses=("203.0.113.0/24",))
    with Sandbox.create(network=Policy(rules=(trap, Rule()))) as sandbox:
        start_counter(sandbox)
        sandbox.processes.start(
            ["python3", "-c", "import socket; socket.create_connection(('203.0.113.5', 443), 60)"]
        )
        until(lambda: sandbox.info().unplugged is not None)
        unplugged = sandbox.info().unplugged
        assert unplugged is not None
        assert "a trap" in unplugged.reason
        until(lambda: sandbox.info().state == "paused")
        sandbox.replug()
        assert count(sandbox) == 2


BETRAYS = """
import socket, sys
with socket.create_connection(("host.atoll.internal", int(sys.argv[1])), 60) as connection:
    greeting = connection.recv(100)
    connection.sendall(b"HELO " + greeting)
    assert connection.recv(100) == b"250 go on"
    connection.sendall(b"DATA " + sys.argv[2].encode() * 2)
    connection.recv(1)
"""


def test_a_canary_in_a_protocol_that_a_rule_of_name_alone_lets_through_unplugs(module_home: Path) -> None:
    canary, heard = "AKIA-bait-0123456789", bytearray()

    def serve(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"220 ready")
            heard.extend(connection.recv(100))
            connection.sendall(b"250 go on")
            while data := connection.recv(100):
                heard.extend(data)

    Secrets.create("bait", canary, canary=True)
    try:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
            serving = threading.Thread(target=serve, args=(listener,), daemon=True)
            serving.start()
            with Sandbox.create(network=Policy(rules=(Policy.expose_host(port),))) as sandbox:
                start_counter(sandbox)
                sandbox.files.write("/tmp/betrays.py", BETRAYS)
                sandbox.processes.start(["python3", "/tmp/betrays.py", str(port), canary])
                until(lambda: sandbox.info().unplugged is not None)
                reason = "a canary appeared in a connection to host.atoll.internal"
                unplugged = sandbox.info().unplugged
                assert unplugged is not None
                assert unplugged.reason == reason
                told = [one for one in sandbox.egress.decisions() if one.action == "unplug"]
                assert [(one.host, one.port, one.reason) for one in told] == [
                    ("host.atoll.internal", port, reason)
                ]
                serving.join(20)
                assert heard == b"HELO 220 ready"
                sandbox.replug()
                assert count(sandbox) == 2
    finally:
        Secrets.delete("bait")


def test_all_are_unplugged_by_one_command_and_replugged_by_another(home: Path) -> None:
    with Sandbox.create(name="one") as one, Sandbox.create(name="two") as two:
        two.suspend()
        done = json.loads(said("unplug", "--all", "--reason", "enough", "--json"))
        assert (set(done["unplugged"]), done["failed"]) == ({one.id, two.id}, {})
        assert "paused, unplugged" in said("ls")
        assert "enough" in said("info", "one")
        refused = atoll("exec", "one", "true")
        assert refused.returncode == 125
        assert b"atoll replug" in refused.stderr
        done = json.loads(said("replug", "one", "two", "--json"))
        assert (done["one"]["state"], done["two"]["state"]) == ("running", "suspended")
        assert two.run("echo awake").stdout == "awake\n"
        assert atoll("unplug").returncode == 125
        assert atoll("unplug", "nobody").returncode == 125


def test_without_the_supervisor_all_are_unplugged_and_a_name_that_is_nobodys_is_said(home: Path) -> None:
    with Sandbox.create(name="one") as one, Sandbox.create(name="two") as two:
        two.suspend()
        pid = supervisor_pid()
        stop(pid)
        try:
            refused = atoll("unplug", "nobody")
            assert refused.returncode == 125
            assert b"there is no sandbox 'nobody'" in refused.stderr
            with subprocess.Popen([*ATOLL, "unplug", "--all"], stdout=subprocess.PIPE) as process:
                told = process.communicate(timeout=LONG_S)[0].decode()
        finally:
            os.kill(pid, signal.SIGCONT)
        for name in ("one", "two"):
            assert f"{name}: network cut, guest frozen, marked" in told
        until(lambda: one.info().unplugged is not None and two.info().unplugged is not None)
        assert two.info().state == "suspended"
        two.replug()
        assert two.run("echo awake").stdout == "awake\n"
