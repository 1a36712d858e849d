"""What must be new after a restore: random bytes, identity, keys, the clock; and how programs inside learn of it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import restore_waiter
from tests.e2e.counter import BOUND_S

from atoll import Sandbox, Snapshots

pytestmark = pytest.mark.twice

CLOCK_S = 0.1
OWN = {
    "urandom": "head -c 16 /dev/urandom | base64",
    "getrandom": "python3 -c 'import os; print(os.getrandom(16).hex())'",
    "uuid": "python3 -c 'import uuid; print(uuid.uuid4())'",
    "kernel's uuid": "cat /proc/sys/kernel/random/uuid",
    "hostname": "hostname",
    "machine id": "cat /etc/machine-id",
    "ed25519 key": "cat /etc/ssh/ssh_host_ed25519_key.pub",
    "ecdsa key": "sudo cat /etc/ssh/ssh_host_ecdsa_key",
}
HOOKS = {
    "10-fails": "echo about to fail; exit 3",
    "20-notes": 'echo "$(id -un) $ATOLL_GENERATION $(cat /run/atoll/generation) $ATOLL_IDENTITY" >>/var/log/lives',
}
SERVER = """
import http.server, ssl, sys
server = http.server.HTTPServer(("localhost", 7443), http.server.SimpleHTTPRequestHandler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain("cert.pem", "key.pem")
server.socket = context.wrap_socket(server.socket, server_side=True)
server.serve_forever()
"""
CLIENT = """
import ssl, urllib.request
context = ssl.create_default_context(cafile="cert.pem")
print(urllib.request.urlopen("https://localhost:7443/", context=context).status)
"""
NAP_S = 2.0
CERTIFICATE = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=localhost"
    " -addext subjectAltName=DNS:localhost -keyout key.pem -out cert.pem"
)


@pytest.fixture(scope="module")
def prepared(module_home: Path) -> Iterator[Sandbox]:
    """A sandbox with ssh host keys, hooks and a program that waits for restores."""
    with Sandbox.create() as sandbox:
        for kind in ("ed25519", "ecdsa"):
            sandbox.run(f"sudo ssh-keygen -q -t {kind} -N '' -f /etc/ssh/ssh_host_{kind}_key").check()
        for name, script in HOOKS.items():
            sandbox.files.write(name, f"#!/bin/sh\n{script}\n")
            sandbox.run(f"sudo install -D -m 755 {name} /etc/atoll/on-restore.d/{name}").check()
        sandbox.files.write("restore_waiter.py", Path(restore_waiter.__file__).read_text())
        sandbox.processes.start(["python3", "restore_waiter.py"])
        wait_for_port(sandbox, restore_waiter.PORT)
        yield sandbox


def wait_for_port(sandbox: Sandbox, port: int) -> None:
    end = time.monotonic() + BOUND_S
    while sandbox.run(f"ss -tln | grep -q LISTEN.*:{port}").exit_code:
        assert time.monotonic() < end


def ask(sandbox: Sandbox) -> dict[str, Any]:
    """Ask the program that waits, whose clock must be right and who must know of this life."""
    before = time.time()
    with sandbox.ports.dial(restore_waiter.PORT) as connection:
        connection.settimeout(BOUND_S)
        read = b""
        while piece := connection.recv(10_000):
            read += piece
    told: dict[str, Any] = json.loads(read)
    assert before - CLOCK_S <= told["clock"] <= time.time() + CLOCK_S
    assert told["noticed"]
    return told


def lives(sandbox: Sandbox) -> list[str]:
    return sandbox.run("cat /var/log/lives").stdout.splitlines()


def test_forks_share_no_random_bytes_no_identity_and_no_keys(prepared: Sandbox) -> None:
    forks = prepared.fork(2)
    with contextlib.ExitStack() as stack:
        for fork in forks:
            stack.enter_context(fork)
        every = (prepared, *forks)
        for what, command in OWN.items():
            told = [each.run(command).check().stdout for each in every]
            assert len(set(told)) == 3, what
        answers = [ask(each) for each in every]
        for what in ("random", "openssl"):
            assert len({answer[what] for answer in answers}) == 3, what
        assert len({answer["untouched"] for answer in answers}) == 1


def test_hooks_run_as_root_before_a_sandbox_is_handed_out_and_a_failing_one_stops_nothing(
    prepared: Sandbox,
) -> None:
    known = len(lives(prepared))
    key = prepared.run(OWN["ed25519 key"]).stdout
    prepared.suspend()
    *_, woken = lives(prepared)
    now = prepared.files.read("/run/atoll/generation").strip()
    assert woken == f"root {now} {now} kept"
    assert prepared.run(OWN["ed25519 key"]).stdout == key
    assert any("hook 10-fails: about to fail" in line for line in prepared.logs())
    with prepared.fork()[0] as fork:
        assert [line.split()[-1] for line in lives(fork)[known:]] == ["kept", "new"]


def test_hooks_before_a_suspend_run_as_root_and_a_failing_one_stops_nothing(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        hooks = {"1-fails": "echo about to sleep; exit 3", "2-notes": "id -un >>/var/log/sleeps; sync"}
        for name, script in hooks.items():
            sandbox.files.write(name, f"#!/bin/sh\n{script}\n")
            sandbox.run(f"sudo install -D -m 755 {name} /etc/atoll/before-suspend.d/{name}").check()
        sandbox.suspend()
        assert any("hook 1-fails: about to sleep" in line for line in sandbox.logs())
        assert sandbox.run("cat /var/log/sleeps").stdout == "root\n"
        sandbox.suspend(memory=False)
        assert sandbox.run("cat /var/log/sleeps").stdout == "root\n" * 2


def test_every_restore_has_another_generation_and_a_program_that_waits_sees_each(prepared: Sandbox) -> None:
    first = ask(prepared)["seen"]
    snapshot = prepared.snapshot()
    try:
        assert ask(prepared)["seen"] == first
        for _ in range(2):
            prepared.suspend()
            ask(prepared)
        assert ask(prepared)["seen"] == [*first, first[-1] + 1, first[-1] + 2]
        prepared.rollback(snapshot)
        back = ask(prepared)["seen"]
        assert back[:-1] == first
        assert back[-1] > first[-1] + 2
        with Sandbox.create(snapshot) as copy:
            assert ask(copy)["seen"][-1] != first[-1]
            assert lives(copy)[-1].endswith("new")
    finally:
        # The sandbox stands on it, so both go.
        prepared.kill()
        Snapshots.delete(snapshot.snapshot_id)


def test_a_copy_speaks_tls_with_a_server_whose_certificate_is_newer_than_its_snapshot(
    module_home: Path,
) -> None:
    with Sandbox.create() as sandbox:
        sandbox.files.write("server.py", SERVER)
        sandbox.files.write("client.py", CLIENT)
        snapshot = sandbox.snapshot()
        end = time.time() + 2  # certificates know whole seconds
        while time.time() < end:
            time.sleep(0.1)
        sandbox.run(CERTIFICATE).check()
        with Sandbox.create(snapshot) as copy:
            for name in ("cert.pem", "key.pem"):
                copy.files.write(name, sandbox.files.read(name))
            copy.processes.start(["python3", "server.py"])
            wait_for_port(copy, 7443)
            assert copy.run("python3 client.py").check().stdout == "200\n"
            copy.run("curl -sS --cacert cert.pem https://localhost:7443/").check()
        Snapshots.delete(snapshot.snapshot_id)


def test_time_asleep_counts_for_every_clock(module_home: Path) -> None:
    with Sandbox.create() as sandbox:

        def told() -> list[float]:
            shown = sandbox.run("python3 -c 'import time; print(time.monotonic(), time.time())'").check()
            return [float(word) for word in shown.stdout.split()]

        before = told()
        sandbox.suspend()
        time.sleep(NAP_S)
        assert all(later - earlier >= NAP_S for earlier, later in zip(before, told(), strict=True))
        sandbox.kill()
