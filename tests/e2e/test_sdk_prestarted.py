"""A machine is kept ready for what is woken or forked, and nobody can tell by the sandbox."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import threading
import time
from pathlib import Path

from tests.e2e.counter import count, start_counter
from tests.homes import processes_of

from atoll import AtollError, Limits, Sandbox, Supervisor
from atoll.host import Home, find_holder

BOUND_S = 90.0
# A prestarted machine's processes start in a network namespace of its own, which has its name.
MADE_AHEAD = re.compile(rb"--gofer-network-namespace=[^\0]*/pins/([a-z0-9]{20})\.inner")


def made_ahead(home: Path, command: bytes = b"boot") -> dict[str, int]:
    """The sentries (or with ``gofer`` the gofers) of machines that are prestarted, or were: names and numbers."""
    run = os.fsencode(Home(home).run)
    found: dict[str, int] = {}
    for pid in sorted(int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()):
        try:
            line = Path(f"/proc/{pid}/cmdline").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if run in line and command in line.split(b"\0") and (match := MADE_AHEAD.search(line)):
            # A sentry's children, which run the guest's programs, have its command line.
            found.setdefault(match[1].decode(), pid)
    return found


def is_being_made(home: Path, name: str) -> bool:
    """Whether the command that starts a prestarted machine still goes on."""
    starts = [line for line in processes_of(Home(home)) if " create " in line]
    return any(name in line for line in starts)


def is_pinned(home: Path, name: str) -> bool:
    """Whether its namespace is still held for it, which ends last."""
    holder = find_holder(Home(home))
    assert holder is not None
    return Path(f"/proc/{holder.pid}/root{Home(home).run}/pins/{name}.inner").exists()


def new_prestarted(home: Path, known: set[str]) -> str:
    """Wait for a prestarted machine that is not one of those."""
    end = time.monotonic() + BOUND_S
    while len(new := set(made_ahead(home)) - known) != 1:  # one that has been used may not have ended yet
        assert time.monotonic() < end, "no prestarted machine is made"
        time.sleep(0.05)
    (name,) = new
    # It is ready a moment after the command that starts it has ended.
    while is_being_made(home, name) or is_pinned(home, name):
        assert time.monotonic() < end, "a prestarted machine is never ready"
        time.sleep(0.05)
    time.sleep(0.5)
    return name


def prestarted_of(home: Path, sandbox: Sandbox) -> str:
    """Suspend the sandbox, and wait for the prestarted machine that it will be woken in."""
    end = time.monotonic() + BOUND_S
    sandbox.suspend()
    # What tests before this one have left may be about to end.
    while len(found := {name for name in made_ahead(home) if not has_begun(home, name)}) != 1:
        assert time.monotonic() < end, f"prestarted machines: {found}"
        time.sleep(0.05)
    return new_prestarted(home, set(made_ahead(home)) - found)


def has_begun(home: Path, name: str) -> bool:
    """Whether a guest goes on in what was a prestarted machine: then its root is mounted for its gofer."""
    pid = made_ahead(home, b"gofer").get(name)
    try:
        mounts = [line.split() for line in Path(f"/proc/{pid}/mountinfo").read_text().splitlines()]
    except OSError:  # it has ended
        return False
    # Until it stands in its place it sees all of the holder's mounts, elsewhere.
    return any(mount[4] == "/" and "overlay" in mount for mount in mounts)


def test_a_sandbox_is_woken_in_a_prestarted_machine_with_all_that_it_had(module_home: Path) -> None:
    data = os.urandom(8 << 20)
    with Sandbox.create(name="sleeper", limits=Limits(processes=40)) as sandbox:
        start_counter(sandbox)
        sandbox.files.write("kept", data)
        sandbox.suspend()
        prestarted = new_prestarted(module_home, set())
        assert count(sandbox) == 2
        assert has_begun(module_home, prestarted)
        assert sandbox.run("hostname").stdout == "sleeper\n"
        # Both ways through its interface, in packets that are cut on the way.
        assert sandbox.files.read_bytes("kept") == data
        sandbox.files.write("again", data[::-1])
        assert sandbox.files.read_bytes("again") == data[::-1]
        assert sandbox.run("cat /.atoll/* >/dev/null; touch /.atoll/x").exit_code != 0
        assert sandbox.run("for i in $(seq 60); do sleep 60 & done").exit_code != 0
        sandbox.run("pkill sleep")
        next_one = new_prestarted(module_home, {prestarted})
        assert not has_begun(module_home, next_one)
        # Once more, in what was a prestarted machine itself.
        sandbox.suspend()
        assert count(sandbox) == 3
        assert has_begun(module_home, next_one)


def test_a_fork_a_snapshot_of_a_big_disk_and_a_rollback_in_what_was_a_prestarted(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        prestarted = prestarted_of(module_home, sandbox)
        assert count(sandbox) == 2
        assert has_begun(module_home, prestarted)
        # More than is copied of a running guest: it steps off its disk and on again.
        sandbox.run("head -c 100000000 /dev/urandom > big; sha256sum big > sum").check()
        snapshot = sandbox.snapshot()
        sandbox.run("sha256sum -c sum && rm big").check()
        assert count(sandbox) == 3
        new_prestarted(module_home, {prestarted})
        (copy,) = sandbox.fork(1)
        with copy:
            assert count(copy) == 4
            assert copy.run("hostname").stdout == f"{copy.id}\n"
            assert copy.run("test -e big").exit_code == 1
        sandbox.rollback(snapshot)
        assert count(sandbox) == 3
        sandbox.run("sha256sum -c sum").check()


def test_a_prestarted_that_was_killed_costs_nobody_anything(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        counted = 1
        for command in (b"boot", b"gofer"):
            prestarted = prestarted_of(module_home, sandbox)
            os.kill(made_ahead(module_home, command)[prestarted], signal.SIGKILL)
            end = time.monotonic() + BOUND_S
            while prestarted in made_ahead(module_home, command):
                assert time.monotonic() < end
                time.sleep(0.01)
            counted += 1
            assert count(sandbox) == counted
            new_prestarted(module_home, {prestarted})


def test_a_prestarted_of_a_supervisor_that_was_killed_is_no_machine_of_anybody(home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.suspend()
        prestarted = new_prestarted(home, set())
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        assert count(sandbox) == 2
        assert prestarted not in made_ahead(home)
        assert Supervisor.leftovers() == []


def test_a_supervisor_that_is_killed_while_it_wakes_loses_nothing(home: Path) -> None:
    """The prestarted machine may have been told what to restore, or not: see also tests/crash."""
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        for number, delay_s in enumerate((0.005, 0.02, 0.04, 0.08)):
            used = {name for name in made_ahead(home) if has_begun(home, name)}
            sandbox.suspend()
            new_prestarted(home, used)
            hello = Supervisor.hello()
            assert hello is not None
            killing = threading.Timer(delay_s, os.kill, (hello.pid, signal.SIGKILL))
            killing.start()
            with contextlib.suppress(AtollError):
                sandbox.exec(["true"])
            killing.join()
            assert count(sandbox) == number + 2
        assert Supervisor.leftovers() == []


def test_a_guest_that_was_woken_in_a_prestarted_machine_cannot_write_to_the_agent_that_all_sandboxes_have(
    module_home: Path,
) -> None:
    with Sandbox.create() as sandbox:
        prestarted = prestarted_of(module_home, sandbox)
        sandbox.run("sudo mount -o remount,rw /.atoll").check()
        assert has_begun(module_home, prestarted)
        assert sandbox.run("sudo touch /.atoll/x").exit_code != 0
        # Of a gofer of its own that came later, too.
        sandbox.run("head -c 100000000 /dev/urandom > big").check()
        sandbox.snapshot()
        assert sandbox.run("sudo touch /.atoll/x").exit_code != 0
    for program in Home(module_home).path.glob("bin/*/*"):
        assert program.name != "x"


def test_a_link_in_a_guest_leads_no_mount_to_the_host(module_home: Path, tmp_path: Path) -> None:
    with Sandbox.create() as sandbox:
        script = f"umount -l /.atoll && rmdir /.atoll && ln -s {tmp_path} /.atoll"
        sandbox.run(f"sudo sh -c '{script}'").check()
        prestarted_of(module_home, sandbox)
        # It has harmed itself; nobody else.
        with contextlib.suppress(AtollError):
            sandbox.exec(["true"])
        hello = Supervisor.hello()
        assert hello is not None
        assert str(tmp_path) not in Path(f"/proc/{hello.pid}/mountinfo").read_text()
