"""How long sandboxes may run, and what is left of them then."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from pathlib import Path
from typing import cast

import anyio
import pytest
from click.testing import CliRunner
from tests.e2e.counter import count, start_counter
from tests.waiting import until

from atoll import AsyncSandbox, AtollError, Lifecycle, Policy, Sandbox, Supervisor
from atoll.cli.atoll import atoll
from atoll.errors import AsleepError, SandboxNotFoundError, StateError
from atoll.protocol import Hello

PATIENCE_S = 120.0
BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
# A question for a name that nobody has; the answer's code, of which 5 is a refusal.
# Asks for host.atoll.internal, and prints the answer's code.
THERE, NO_SUCH_NAME = "0\n", "3\n"
ASK_NAME = """python3 -c '
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(60)
question = "000101000001000000000000" + "04686f7374" + "0561746f6c6c" + "08696e7465726e616c" + "0000010001"
s.sendto(bytes.fromhex(question), ("10.254.0.1", 53))
print(s.recv(512)[3] & 15)
'"""


def is_gone(sandbox: Sandbox) -> bool:
    """Whether a sandbox was killed."""
    try:
        sandbox.info()
    except SandboxNotFoundError:
        return True
    return False


def test_a_sandbox_is_killed_when_its_lease_ends_even_in_the_middle_of_a_call(module_home: Path) -> None:
    sandbox = Sandbox.create(lifecycle=Lifecycle(ttl_s=600))
    begun = threading.Event()
    errors: list[AtollError] = []

    def call() -> None:
        try:
            sandbox.run("echo; exec sleep 1000", on_stdout=lambda _: begun.set(), timeout_s=None)
        except AtollError as error:
            errors.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    assert begun.wait(90)
    with Sandbox.connect(sandbox.id) as other:
        ends_at = other.set_lease(1).ends_at
        assert ends_at is not None
        thread.join(PATIENCE_S)
        assert [type(error) for error in errors] == [SandboxNotFoundError]
        until(lambda: is_gone(other))
        assert time.time() >= ends_at
    sandbox.close()


def test_a_sandbox_that_is_put_to_sleep_goes_on_where_it_was_under_a_new_lease(module_home: Path) -> None:
    lifecycle = Lifecycle(ttl_s=600, on_expiry="suspend", wake_ttl_s=900)
    with Sandbox.create(lifecycle=lifecycle) as sandbox:
        start_counter(sandbox)
        boot_id = sandbox.run(BOOT_ID).stdout
        assert sandbox.set_lease(0).state == "suspended"
        info = sandbox.info()
        assert (info.ends_at, info.has_memory) == (None, True)
        assert count(sandbox) == 2
        info = sandbox.info()
        assert info.ends_at is not None
        assert 600 < info.ends_at - info.started_at < 1000
        assert sandbox.run(BOOT_ID).stdout == boot_id


def test_a_sandbox_that_is_stopped_keeps_its_disk_and_boots_anew(module_home: Path) -> None:
    with Sandbox.create(lifecycle=Lifecycle(ttl_s=600, on_expiry="stop")) as sandbox:
        start_counter(sandbox)
        boot_id = sandbox.run(BOOT_ID).stdout
        sandbox.run("yes 0123456789 | head -c 30000000 > big; touch -d 2001-02-03 old; ln big hard")
        sandbox.set_lease(1)
        until(lambda: sandbox.info().state == "suspended")
        assert not sandbox.info().has_memory
        with pytest.raises(StateError):
            sandbox.snapshot()
        looked = sandbox.run("wc -c < big; stat -c '%y %h' old big").stdout.split()
        assert looked[:2] == ["30000000", "2001-02-03"]
        assert looked[-1] == "2"
        assert sandbox.info().has_memory
        assert sandbox.run(BOOT_ID).stdout != boot_id
        assert sandbox.processes.list() == []
        sandbox.suspend()
        sandbox.resume(memory=False)
        assert sandbox.run("cat big | wc -c").stdout.strip() == "30000000"
        assert len({boot_id, sandbox.run(BOOT_ID).stdout}) == 2


def test_one_that_is_to_sleep_on_is_woken_by_no_use_but_by_hand(module_home: Path) -> None:
    with Sandbox.create(lifecycle=Lifecycle(auto_resume=False)) as sandbox:
        sandbox.files.write("kept", "on disk")
        sandbox.suspend()
        for use in (
            lambda: sandbox.run("true"),
            lambda: sandbox.files.read("kept"),
            lambda: sandbox.ports.dial(7000),
        ):
            with pytest.raises(AsleepError):
                use()
        assert sandbox.info().state == "suspended"
        with Sandbox.connect(sandbox.id, ttl_s=500) as woken:
            assert woken.files.read("kept") == "on disk"
            ends_at = woken.info().ends_at
            assert ends_at is not None
            assert ends_at - time.time() > 100
        with Sandbox.connect(sandbox.id, ttl_s=5) as again:
            assert again.info().ends_at == ends_at


def test_leases_outlive_their_supervisor(home: Path) -> None:
    kept = Sandbox.create(lifecycle=Lifecycle(ttl_s=600, on_expiry="suspend"))
    gone = Sandbox.create(lifecycle=Lifecycle(ttl_s=600))
    slept = Sandbox.create(lifecycle=Lifecycle(ttl_s=600, on_expiry="suspend"))
    start_counter(slept)
    ends_at = kept.info().ends_at
    gone.set_lease(2)
    over_at = slept.set_lease(2).ends_at or 0
    os.kill(cast(Hello, Supervisor.hello()).pid, signal.SIGKILL)
    until(lambda: time.time() > over_at)
    until(lambda: is_gone(gone))
    until(lambda: slept.info().state == "suspended")
    info = kept.info()
    assert (info.state, info.ends_at) == ("running", ends_at)
    assert count(slept) == 2
    for sandbox in (kept, slept):
        sandbox.kill()
    gone.close()


def test_what_dials_while_a_lease_ends_is_told_so_or_served(module_home: Path) -> None:
    """However a use and a lease's end meet: the use is served, or says that the sandbox sleeps."""

    async def main() -> None:
        lifecycle = Lifecycle(ttl_s=600, on_expiry="suspend", auto_resume=False)
        async with await AsyncSandbox.create(lifecycle=lifecycle) as sandbox:
            for _ in range(5):
                async with anyio.create_task_group() as group:
                    for number in range(8):
                        group.start_soon(use, sandbox.id, number)
                    await sandbox.set_lease(0)
                assert (await sandbox.info()).state == "suspended"
                await sandbox.resume()

    async def use(sandbox_id: str, number: int) -> None:
        with contextlib.closing(await AsyncSandbox.connect(sandbox_id, wake=False)) as sandbox:
            with contextlib.suppress(StateError):
                assert (await sandbox.run(f"echo {number}")).stdout == f"{number}\n"

    anyio.run(main)


def test_a_fork_and_a_snapshot_in_the_middle_of_which_a_lease_ends_are_whole(module_home: Path) -> None:
    with Sandbox.create(lifecycle=Lifecycle(ttl_s=600, on_expiry="stop")) as sandbox:
        start_counter(sandbox)
        sandbox.run("head -c 20000000 /dev/urandom > big; md5sum big > sum")
        for operation in (lambda: sandbox.fork(2, lifecycle=Lifecycle(ttl_s=900)), sandbox.snapshot):
            sandbox.resume()
            sandbox.set_lease(0.2)
            with contextlib.suppress(StateError):  # it may have ended before
                for made in [operation()]:
                    for copy in made if isinstance(made, list) else [Sandbox.create(made)]:
                        with copy:
                            assert copy.run("md5sum -c sum").exit_code == 0
            until(lambda: sandbox.info().state == "suspended")
            assert sandbox.run("md5sum -c sum").exit_code == 0


def test_what_it_may_reach_is_changed_while_it_runs_and_while_it_sleeps(module_home: Path) -> None:
    exposed = Policy(rules=(Policy.expose_host(9),))
    with Sandbox.create(network=exposed) as sandbox:
        assert sandbox.run(ASK_NAME, timeout_s=120).stdout == THERE
        sandbox.set_network("none")
        assert sandbox.run(ASK_NAME).stdout == NO_SUCH_NAME
        sandbox.suspend()
        sandbox.set_network(exposed)
        assert sandbox.info().network == exposed
        assert sandbox.run(ASK_NAME, timeout_s=120).stdout == THERE


def test_what_it_used_is_told_afterwards(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        until(lambda: sandbox.stats_history())
        first = sandbox.stats_history()[0]
        assert first.disk_limit_bytes == 20 << 30
        sandbox.processes.start("while :; do :; done").close()
        until(lambda: any((sample.cpu_percent or 0) > 1 for sample in sandbox.stats_history()))
        assert sandbox.stats_history()[-1].memory_bytes
        sandbox.suspend()
        assert len(sandbox.stats_history()) >= 2
        assert sandbox.stats_history(end=first.at) == [first]


def test_the_command_line_makes_shows_and_moves_leases(module_home: Path) -> None:
    def ask(*arguments: str) -> str:
        answer = CliRunner().invoke(atoll, arguments)
        assert answer.exit_code == 0, answer.output
        return answer.output

    options = ("--lease", "2h", "--on-lease-end", "suspend", "--no-auto-resume")
    made = json.loads(ask("create", "--name", "leased", "--json", *options))
    assert made["lifecycle"] == {"ttl_s": 7200.0, "on_expiry": "suspend", "auto_resume": False}
    assert "ENDS IN" in ask("ls")
    assert "1 h" in ask("ls")
    assert "then suspend; only `atoll resume` wakes it" in ask("info", "leased")
    assert json.loads(ask("lease", "leased", "off", "--json"))["ends_at"] is None
    ask("suspend", "leased", "--no-memory")
    assert "only its disk" in ask("info", "leased")
    refused = CliRunner().invoke(atoll, ["exec", "leased", "true"])
    assert "only `resume` wakes it" in str(refused.exception)
    ask("resume", "leased", "--lease", "30m")
    assert "29 min" in ask("ls")
    assert CliRunner().invoke(atoll, ["lease", "leased", "soon"]).exit_code == 2
    ask("kill", "leased")
