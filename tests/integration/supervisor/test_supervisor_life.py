"""The supervisor on the real host: life cycle, restarts, crashes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from atoll import Sandbox, Snapshot, Snapshots, Supervisor
from atoll.errors import AtollError, InUseError, InvalidSpecError, SandboxCrashedError, SandboxNotFoundError
from atoll.host import Home, find_holder, is_host_root
from tests.waiting import until

PATIENCE_S = 120.0
_COUNTER = """
import socket, threading
n = 0
def serve(connection):
    global n
    with connection:
        while connection.recv(1):
            n += 1
            connection.sendall(b"%d\\n" % n)
listener = socket.create_server(("0.0.0.0", 7000))
open("/home/user/ready", "w").close()
while True:
    threading.Thread(target=serve, args=(listener.accept()[0],)).start()
"""


def count(sandbox: Sandbox) -> int:
    """Ask the counter in a sandbox once more."""
    with sandbox.ports.dial(7000) as connection:
        connection.settimeout(PATIENCE_S)
        connection.sendall(b"?")
        return int(connection.recv(100))


def sentry_of(home: Path, sandbox_id: str) -> int:
    """The host process that a sandbox runs in."""
    with contextlib.closing(sqlite3.connect(home / "state.db")) as database:
        (record,) = database.execute(
            "SELECT machine FROM sandboxes WHERE sandbox_id = ?", [sandbox_id]
        ).fetchone()
    return int(json.loads(record)["sentry_pid"])


def kill_supervisor() -> None:
    """Kill the supervisor as a crash would, and wait for its end."""
    told = Supervisor.hello()
    assert told is not None
    os.kill(told.pid, signal.SIGKILL)
    # Somebody who waits may have started the next one already.
    until(lambda: (now := Supervisor.hello()) is None or now.pid != told.pid)


@pytest.fixture
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    """A running sandbox with a counter in memory that answers on port 7000."""
    made = Sandbox.create()
    try:
        made.files.write("/home/user/counter.py", _COUNTER)
        made.processes.start(["python3", "/home/user/counter.py"])
        until(lambda: made.files.exists("/home/user/ready"))
        yield made
    finally:
        with contextlib.suppress(SandboxNotFoundError):
            made.kill()
        made.close()


def test_memory_and_disk_survive_suspend_and_the_end_of_the_supervisor(
    sandbox: Sandbox, module_home: Path
) -> None:
    assert count(sandbox) == 1
    sandbox.files.write("/home/user/note", "kept")
    sandbox.suspend()
    assert sandbox.info().state == "suspended"
    assert Supervisor.stop()
    assert not (Home(module_home).api_socket).exists()
    assert count(sandbox) == 2
    assert sandbox.files.read("/home/user/note") == "kept"
    assert not (module_home / "sandboxes" / sandbox.id / "checkpoint").exists()


def test_a_killed_supervisor_is_replaced_by_one_that_adopts(sandbox: Sandbox, module_home: Path) -> None:
    assert count(sandbox) == 1
    before = sentry_of(module_home, sandbox.id)
    kill_supervisor()
    assert count(sandbox) == 2
    assert sentry_of(module_home, sandbox.id) == before
    assert [one.sandbox_id for one in Sandbox.list()] == [sandbox.id]
    assert Supervisor.leftovers() == []


def test_a_call_that_waits_starts_another_supervisor(sandbox: Sandbox) -> None:
    """The one that was killed may have left the guest standing still, and nobody else may ask anything."""
    program = sandbox.processes.start(["sleep", "30"])
    waiting = threading.Thread(target=program.wait)
    waiting.start()
    kill_supervisor()
    until(lambda: Supervisor.hello() is not None)
    assert waiting.is_alive()
    program.kill()
    waiting.join()


def test_a_killed_holder_is_replaced_and_nothing_is_lost_with_the_supervisor(
    sandbox: Sandbox, module_home: Path
) -> None:
    assert count(sandbox) == 1
    home = Home(module_home)
    before = find_holder(home)
    assert before is not None
    os.kill(before.pid, signal.SIGKILL)
    until(lambda: find_holder(home) not in (None, before))
    assert count(sandbox) == 2
    kill_supervisor()
    assert count(sandbox) == 3
    with Sandbox.create() as other:
        assert other.run("echo here").stdout == "here\n"


def test_paused_and_suspended_sandboxes_survive_a_killed_supervisor(sandbox: Sandbox) -> None:
    assert count(sandbox) == 1
    sandbox.pause()
    kill_supervisor()
    assert sandbox.info().state == "paused"
    assert count(sandbox) == 2
    sandbox.suspend()
    kill_supervisor()
    assert sandbox.info().state == "suspended"
    assert count(sandbox) == 3


def test_a_crash_is_told_to_a_waiting_call_and_the_disk_survives(sandbox: Sandbox, module_home: Path) -> None:
    sandbox.files.write("/home/user/note", "kept")
    sandbox.run("sync")
    sentry = sentry_of(module_home, sandbox.id)
    begun = threading.Event()

    def wait() -> None:
        sandbox.run("echo; exec sleep 1000000", on_stdout=lambda _: begun.set(), timeout_s=None)

    with ThreadPoolExecutor(1) as background:
        waiting = background.submit(wait)
        assert begun.wait(PATIENCE_S)
        os.kill(sentry, signal.SIGKILL)
        with pytest.raises(SandboxCrashedError):
            waiting.result(PATIENCE_S)
    assert sandbox.info().state == "crashed"
    assert sandbox.info().reason
    assert sandbox.files.read("/home/user/note") == "kept"
    assert sandbox.info().state == "running"


def test_a_waiting_dialled_connection_ends_at_pause_suspend_and_kill(sandbox: Sandbox) -> None:
    for end in (sandbox.pause, sandbox.suspend, sandbox.kill):
        connection = sandbox.ports.dial(7000)
        connection.settimeout(PATIENCE_S)
        ended = threading.Event()

        def wait(connection: socket.socket = connection, ended: threading.Event = ended) -> None:
            with contextlib.suppress(ConnectionError):
                assert connection.recv(1) == b""
            ended.set()

        waiter = threading.Thread(target=wait)
        waiter.start()
        end()
        waiter.join()
        connection.close()
        assert ended.is_set()


def test_the_end_of_a_client_is_seen_inside(sandbox: Sandbox) -> None:
    sandbox.files.write(
        "/home/user/eof.py",
        "import socket\nl = socket.create_server(('0.0.0.0', 7001))\nopen('up', 'w').close()\n"
        "c, _ = l.accept()\nassert c.recv(9) == b'hello'\nassert c.recv(9) == b''\nprint('seen')\n",
    )
    server = sandbox.processes.start(["python3", "eof.py"])
    until(lambda: sandbox.files.exists("up"))
    connection = sandbox.ports.dial(7001)
    connection.sendall(b"hello")
    connection.close()
    assert server.wait().stdout == "seen\n"


def test_forks_go_on_with_the_same_memory_as_somebody_else(sandbox: Sandbox) -> None:
    assert count(sandbox) == 1
    original = sandbox.run("hostname; cat /etc/machine-id").stdout
    copies = sandbox.fork(2)
    try:
        assert [count(copy) for copy in copies] == [2, 2]
        told = {copy.run("hostname; cat /etc/machine-id").stdout for copy in copies}
        assert len(told | {original}) == 3
        for copy in copies:
            assert abs(float(copy.run("date +%s.%N").stdout) - time.time()) < 10
    finally:
        for copy in copies:
            copy.kill()
            copy.close()
    assert count(sandbox) == 2


def test_a_sleeping_sandbox_is_forked_without_being_woken(sandbox: Sandbox) -> None:
    count(sandbox)
    sandbox.files.write("/home/user/note", "kept")
    sandbox.suspend()
    (copy,) = sandbox.fork(1)
    try:
        assert sandbox.info().state == "suspended"
        assert count(copy) == 2
        copy.files.write("/home/user/note", "changed")
    finally:
        copy.kill()
        copy.close()
    assert sandbox.files.read("/home/user/note") == "kept"
    assert count(sandbox) == 2


def test_a_rollback_brings_memory_and_disk_of_one_instant_back(sandbox: Sandbox) -> None:
    assert count(sandbox) == 1
    sandbox.files.write("/home/user/note", "then")
    snapshot = sandbox.snapshot("then")
    try:
        assert count(sandbox) == 2
        sandbox.files.write("/home/user/note", "now")
        sandbox.rollback("then")
        assert count(sandbox) == 2
        assert sandbox.files.read("/home/user/note") == "then"
        assert sandbox.info().snapshot_id == snapshot.snapshot_id
        sandbox.suspend()
        assert count(sandbox) == 3
    finally:
        sandbox.kill()
        Snapshots.delete("then")


def test_a_rollback_that_cannot_restore_leaves_the_sandbox_running(
    sandbox: Sandbox, module_home: Path
) -> None:
    count(sandbox)
    snapshot = sandbox.snapshot()
    try:
        checkpoint = module_home / "snapshots" / snapshot.snapshot_id / "checkpoint" / "pages_meta.img"
        kept = checkpoint.read_bytes()
        checkpoint.write_bytes(b"rubbish")
        with pytest.raises(AtollError):
            sandbox.rollback(snapshot)
        assert count(sandbox) == 2
        assert Supervisor.leftovers() == []
        checkpoint.write_bytes(kept)
        sandbox.rollback(snapshot)
        assert count(sandbox) == 2
    finally:
        sandbox.kill()
        Snapshots.delete(snapshot.snapshot_id)


def test_a_wake_that_fails_costs_no_memory_whose_disk_has_hard_links_of_a_frozen_layer(
    sandbox: Sandbox, module_home: Path
) -> None:
    if not is_host_root():
        return  # nothing stands on a frozen layer there
    assert count(sandbox) == 1
    sandbox.run("cd /root; mkdir -p d; echo a >a; ln a b; ln a d/c", user="root").check()
    sandbox.suspend()
    snapshot = sandbox.snapshot()
    try:
        sandbox.run("echo more >>/root/a", user="root").check()
        sandbox.suspend()
        # Waits until nothing of it is left to be ended.
        sandbox.suspend()
        (layer,) = (path for path in (module_home / "layers").iterdir() if not path.name.startswith("."))
        layer.rename(module_home / "aside")
        with pytest.raises(AtollError, match="missing"):
            sandbox.resume()
        (module_home / "aside").rename(layer)
        assert sandbox.info().state == "suspended"
        assert count(sandbox) == 2
        assert sandbox.run("cat /root/d/c", user="root").stdout == "a\nmore\n"
    finally:
        sandbox.kill()
        Snapshots.delete(snapshot.snapshot_id)


def test_a_snapshot_starts_new_sandboxes_after_its_own_is_gone(sandbox: Sandbox) -> None:
    count(sandbox)
    snapshot = sandbox.snapshot("seed", comment="the beginning")
    sandbox.kill()
    made = Sandbox.create(Snapshot("seed"), env={"ONLY": "here"})
    try:
        assert count(made) == 2
        assert made.run("echo $ONLY").stdout == "here\n"
        child = made.snapshot("child")
        assert child.parent_id == snapshot.snapshot_id
        with pytest.raises(InUseError):
            Snapshots.delete("seed")
        assert [one.comment for one in Snapshots.list()] == ["the beginning", ""]
    finally:
        made.kill()
        made.close()
        Snapshots.delete("child")
        Snapshots.delete("seed")
    assert list(Snapshots.list()) == []


def test_two_clients_at_once_get_one_supervisor(module_home: Path) -> None:
    Supervisor.stop()
    with ThreadPoolExecutor(4) as clients:
        list(clients.map(lambda _: list(Sandbox.list()), range(4)))
    told = Supervisor.hello()
    assert told is not None
    lines = (module_home / "supervisor.log").read_text().splitlines()
    served = [line for line in lines if " serves " in line]
    assert f"supervisor {told.pid} serves" in served[-1]


def test_a_supervisor_that_cannot_start_tells_its_client_why(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_POOL_SIZE", "many")
    with pytest.raises(InvalidSpecError, match="ATOLL_POOL_SIZE is 'many'"):
        list(Sandbox.list())
    monkeypatch.delenv("ATOLL_POOL_SIZE")
    assert list(Sandbox.list()) == []


def test_what_a_crash_left_over_is_shown_and_removed(module_home: Path) -> None:
    list(Sandbox.list())
    lost = module_home / "sandboxes" / "lost"
    lost.mkdir()
    (lost / "file").write_text("x" * 5000)
    (shown,) = Supervisor.leftovers()
    assert shown.name == str(lost)
    assert shown.size_bytes >= 5000
    assert Supervisor.collect() == [shown]
    assert not lost.exists()


def test_an_idle_supervisor_leaves_and_takes_the_holder_with_it(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ATOLL_IDLE_EXIT_S", "2")
    with Sandbox.create() as sandbox:
        assert sandbox.run("echo here").stdout == "here\n"
    until(lambda: not Home(home).api_socket.exists())
    until(
        lambda: not (home / "run" / "holder.json").exists() and not (Home(home).run / "holder.json").exists()
    )


def test_a_paused_sandbox_is_woken_by_use_and_looking_wakes_nothing(sandbox: Sandbox) -> None:
    sandbox.pause()
    sandbox.stats()
    list(sandbox.logs())
    assert sandbox.info().state == "paused"
    assert sandbox.run("echo awake").stdout == "awake\n"
    assert sandbox.info().state == "running"


def test_a_paused_sandbox_can_be_suspended_and_forked(sandbox: Sandbox) -> None:
    assert count(sandbox) == 1
    sandbox.pause()
    (copy,) = sandbox.fork(1)
    try:
        assert count(copy) == 2
    finally:
        copy.kill()
        copy.close()
    assert sandbox.info().state == "paused"
    sandbox.suspend()
    assert count(sandbox) == 2
