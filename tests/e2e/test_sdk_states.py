from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import anyio
import pytest
from tests import homes
from tests.e2e.counter import count, start_counter

from atoll import AsyncSandbox, AtollError, Sandbox, Snapshot, Snapshots, Supervisor
from atoll.errors import (
    ImagePullError,
    InUseError,
    NameTakenError,
    SandboxCrashedError,
    SandboxNotFoundError,
    SnapshotNotFoundError,
    StateError,
)

pytestmark = pytest.mark.twice


def test_a_paused_sandbox_goes_on_at_its_next_use(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.pause()
        assert sandbox.info().state == "paused"
        assert count(sandbox) == 2
        assert sandbox.info().state == "running"
        sandbox.pause()
        sandbox.resume()
        assert sandbox.run("echo awake").stdout == "awake\n"
        assert count(sandbox) == 3


def test_a_suspended_sandbox_remembers_memory_and_disk(module_home: Path) -> None:
    with Sandbox.create(name="sleeper") as sandbox:
        process = start_counter(sandbox)
        sandbox.files.write("kept", "on disk")
        sandbox.suspend()
        assert Sandbox.get("sleeper").state == "suspended"
        assert sandbox.stats().processes in (0, None)
        assert Sandbox.get("sleeper").state == "suspended"
        with Sandbox.connect("sleeper") as woken:
            assert woken.id == sandbox.id
            assert count(woken) == 2
            assert woken.files.read("kept") == "on disk"
            assert process.pid in [row.pid for row in woken.processes.list()]
        sandbox.suspend()
        assert count(sandbox) == 3


def test_sleep_in_the_middle_of_a_call_is_said_and_the_program_goes_on(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
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
        with Sandbox.connect(sandbox.id, wake=False) as other:
            other.suspend()
        thread.join(90)
        assert [type(error) for error in errors] == [StateError]
        (row,) = sandbox.processes.list()
        sandbox.processes.attach(row.pid).kill()


def test_a_snapshot_starts_other_sandboxes_and_its_own_goes_on(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.files.write("file", "then")
        snapshot = sandbox.snapshot("before", comment="of then")
        sandbox.files.write("file", "now")
        assert count(sandbox) == 2
        with Sandbox.create(Snapshot("before")) as twin:
            assert twin.id != sandbox.id
            assert count(twin) == 2
            assert twin.files.read("file") == "then"
            assert twin.run("hostname").stdout != sandbox.run("hostname").stdout
        assert count(sandbox) == 3
        with pytest.raises(NameTakenError):
            sandbox.snapshot("before")
        assert Snapshots.get("before").comment == "of then"
        assert [info.snapshot_id for info in sandbox.snapshots()] == [snapshot.snapshot_id]
    assert Snapshots.get("before").snapshot_id == snapshot.snapshot_id
    Snapshots.delete("before")
    with pytest.raises(SnapshotNotFoundError):
        Snapshots.get("before")


def test_forks_go_their_own_ways_from_the_same_state(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.files.write("file", "shared")
        forks = sandbox.fork(2)
        try:
            assert [count(fork) for fork in forks] == [2, 2]
            forks[0].files.write("file", "mine")
            assert forks[1].files.read("file") == sandbox.files.read("file") == "shared"
            machines = {each.run("cat /etc/machine-id; hostname").stdout for each in (sandbox, *forks)}
            assert len(machines) == 3
            seeds = {each.run("head -c 16 /dev/urandom | base64").stdout for each in (sandbox, *forks)}
            assert len(seeds) == 3
        finally:
            for fork in forks:
                fork.kill()
        assert count(sandbox) == 2


def test_a_rollback_is_in_place_and_can_be_repeated(module_home: Path) -> None:
    with Sandbox.create(name="undo") as sandbox:
        start_counter(sandbox)
        sandbox.files.write("file", "good")
        good = sandbox.snapshot()
        for _ in range(2):
            assert count(sandbox) == 2
            sandbox.run("rm file; touch rubbish").check()
            sandbox.rollback(good)
            assert sandbox.files.read("file") == "good"
            assert not sandbox.files.exists("rubbish")
        assert Sandbox.get("undo").sandbox_id == sandbox.id
        with pytest.raises(SnapshotNotFoundError):
            sandbox.rollback("nosuch")
        assert count(sandbox) == 2
        child = sandbox.snapshot()
        assert child.parent_id == good.snapshot_id
        with pytest.raises(InUseError):
            Snapshots.delete(good.snapshot_id)
    Snapshots.delete(child.snapshot_id)
    Snapshots.delete(good.snapshot_id)


def test_names_ids_and_images_that_are_wrong_say_so(module_home: Path) -> None:
    with Sandbox.create(name="unique") as sandbox:
        with pytest.raises(NameTakenError):
            Sandbox.create(name="unique")
        with pytest.raises(ImagePullError, match="nosuch"):
            Sandbox.create("127.0.0.1:9/nosuch")  # nothing listens there
        with pytest.raises(SnapshotNotFoundError):
            Sandbox.create(Snapshot("nosuch"))
        with pytest.raises(ValueError):
            Sandbox.create(name="Not A Name")
        sandbox.kill()
        for use in (sandbox.info, lambda: sandbox.run("true"), sandbox.pause, sandbox.kill):
            with pytest.raises(SandboxNotFoundError):
                use()
    with pytest.raises(SandboxNotFoundError):
        Sandbox.connect("unique")


def test_lists_are_filtered_and_wake_nobody(module_home: Path) -> None:
    with (
        Sandbox.create(metadata={"team": "a", "n": "1"}) as one,
        Sandbox.create(metadata={"team": "a"}) as two,
    ):
        two.suspend()
        assert [info.sandbox_id for info in Sandbox.list(metadata={"team": "a"})] == [one.id, two.id]
        assert [info.sandbox_id for info in Sandbox.list(metadata={"team": "a"}, limit=1)] == [one.id]
        assert [info.sandbox_id for info in Sandbox.list(state="suspended")] == [two.id]
        assert list(Sandbox.list(metadata={"team": "b"})) == []
        assert two.info().state == "suspended"


def test_a_sandbox_that_dies_says_so_and_starts_again_from_its_disk(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        sandbox.run("echo safe > file; sync").check()
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
        homes.kill_machines(module_home)
        thread.join(90)
        assert [type(error) for error in errors] == [SandboxCrashedError]
        assert sandbox.info().state == "crashed"
        with Sandbox.connect(sandbox.id) as again:
            assert again.files.read("file") == "safe\n"


def test_a_killed_supervisor_costs_nothing_but_itself(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        process = start_counter(sandbox)
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        assert count(sandbox) == 2
        assert process.pid in [row.pid for row in sandbox.processes.list()]
        after = Supervisor.hello()
        assert after is not None
        assert after.pid != hello.pid
        assert sandbox.info().state == "running"


def test_stopping_the_supervisor_puts_all_to_sleep_and_the_next_use_wakes_them(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        assert Supervisor.stop()
        assert Supervisor.hello() is None
        assert Sandbox.get(sandbox.id).state == "suspended"
        assert count(sandbox) == 2


def test_the_async_sandbox_sleeps_wakes_and_forks(module_home: Path) -> None:
    async def work() -> None:
        async with await AsyncSandbox.create() as sandbox:
            await sandbox.files.write("file", "x")
            await sandbox.suspend()
            assert (await AsyncSandbox.get(sandbox.id)).state == "suspended"
            assert await sandbox.files.read("file") == "x"
            (fork,) = await sandbox.fork()
            async with fork:
                assert (await fork.run("cat file")).stdout == "x"
            snapshot = await sandbox.snapshot()
            await sandbox.files.delete("file")
            await sandbox.rollback(snapshot)
            assert await sandbox.files.exists("file")
            assert [info.sandbox_id async for info in AsyncSandbox.list()] == [sandbox.id]
            assert all([isinstance(text, str) async for text in sandbox.logs()])
        Snapshots.delete(snapshot.snapshot_id)

    anyio.run(work)
