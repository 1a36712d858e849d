"""Sandboxes whose disks the engine keeps: by setting here, and by need as a user without subordinate ranges."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import homes
from tests.e2e.counter import count, start_counter

from atoll import Images, Lifecycle, Sandbox, Snapshots, Supervisor, VolumeMount, Volumes
from atoll.errors import HostError, UnsupportedError
from atoll.host import Home, find_holder, is_host_root
from atoll.host.namespaces.userns import own_ranges

pytestmark = pytest.mark.twice

OWNED = ("/home/user", "/workspace", "~/.bashrc", "/etc/shadow", "/usr/bin/chage", "/usr/bin/sudo")
CRASH_S = 60.0


@pytest.fixture(scope="module")
def engine_home() -> Iterator[Path]:
    with pytest.MonkeyPatch.context() as patch:
        if not has_one_number():
            patch.setenv("ATOLL_DISK", "engine")
        with homes.make_home() as path:
            yield path


def has_one_number() -> bool:
    try:
        return not is_host_root() and not own_ranges()
    except HostError:
        return True


def test_inside_nothing_tells_that_the_engine_keeps_the_disk(engine_home: Path) -> None:
    with Sandbox.create(name="plain") as sandbox:
        assert sandbox.info().engine_disk
        owners = sandbox.run(f"stat -c '%U:%G %a' {' '.join(OWNED)}")
        assert owners.stdout.splitlines() == [
            "user:user 755",
            "user:user 755",
            "user:user 644",
            "root:shadow 640",
            "root:shadow 2755",
            "root:root 4755",
        ]
        assert (
            sandbox.run("sudo sh -c 'id -u; useradd -m other && su other -c \"touch ~/mine\"'").stdout
            == "0\n"
        )
        assert sandbox.run("stat -c %U /home/other/mine").stdout == "other\n"
        assert sandbox.run("cat /etc/shadow").exit_code != 0
        sandbox.run("mkdir -p a/b && echo 1 > a/b/c && mv a z && ln z/b/c d && echo 2 >> d").check()
        assert sandbox.files.read("z/b/c") == "1\n2\n"
        assert sandbox.run("python3 -m venv v && v/bin/python -c 'print(6 * 7)'").stdout == "42\n"
        host = os.statvfs(engine_home)
        shown = sandbox.run("df -B1 --output=size,used,avail,itotal / | tail -1").check().stdout.split()
        assert not {str(host.f_blocks * host.f_frsize), str(host.f_files)} & set(shown)


def test_sleep_keeps_memory_and_disk(engine_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.files.write("kept", b"x" * (8 << 20))
        assert sandbox.stats().disk_bytes >= 8 << 20
        sandbox.pause()
        assert count(sandbox) == 2
        sandbox.suspend()
        assert sandbox.stats().disk_bytes >= 8 << 20
        assert count(sandbox) == 3
        assert len(sandbox.files.read_bytes("kept")) == 8 << 20


def test_snapshots_forks_and_rollbacks_have_the_disk_of_their_instant(engine_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.files.write("story", "first")
        first = sandbox.snapshot()
        assert first.engine_disk
        sandbox.files.write("story", "second")
        (fork,) = sandbox.fork(1)
        with fork:
            assert (fork.files.read("story"), count(fork)) == ("second", 2)
        sandbox.suspend()
        second = sandbox.snapshot()
        sandbox.rollback(first)
        assert (sandbox.files.read("story"), count(sandbox)) == ("first", 2)
        with Sandbox.create(second) as copy:
            assert (copy.files.read("story"), count(copy)) == ("second", 2)
    for snapshot in (second, first):
        Snapshots.delete(snapshot.snapshot_id)


def test_a_crash_brings_back_the_newest_instant_and_says_what_is_lost(engine_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        sandbox.files.write("early", "kept")
        snapshot = sandbox.snapshot()
        sandbox.files.write("late", "lost")
        crash(sandbox)
        assert "since its last suspend or snapshot are lost" in str(sandbox.info().reason)
        assert (sandbox.files.read("early"), count(sandbox)) == ("kept", 2)
        assert not sandbox.files.exists("late")
        sandbox.files.write("late", "kept now")
        sandbox.suspend()
        assert sandbox.files.read("late") == "kept now"
        (fork,) = sandbox.fork(1)
        with fork:
            crash(fork)
            assert (fork.files.read("late"), count(fork)) == ("kept now", 3)
    Snapshots.delete(snapshot.snapshot_id)


def test_a_supervisor_that_starts_anew_finds_such_sandboxes(engine_home: Path) -> None:
    with Sandbox.create() as sandbox:
        start_counter(sandbox)
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        assert count(sandbox) == 2
        sandbox.suspend()
        assert count(sandbox) == 3


def test_doctor_says_what_such_a_disk_costs(engine_home: Path) -> None:
    (found,) = [finding for finding in Supervisor.doctor().findings if finding.name == "disk kind"]
    assert found.level in ("note", "warning")
    assert "a crash loses the changes since the last" in found.message


def test_a_volume_serves_every_user_whose_disk_the_engine_keeps(engine_home: Path) -> None:
    Volumes.create("shared")
    files = Volumes.files("shared")
    with (
        Sandbox.create(volumes={"/data": "shared"}) as one,
        Sandbox.create(volumes={"/d": "shared", "/reads": VolumeMount("shared", read_only=True)}) as other,
    ):
        one.run("mkdir -p /data/dir/deep && echo 1 >/data/dir/file").check()
        other.run("echo 2 >>/d/dir/file && touch /d/dir/deep/more && sudo touch /d/dir/roots").check()
        one.suspend()
        assert files.read("dir/file") == "1\n2\n"
        files.write("dir/file", "3\n")
        files.write("new/file", "new\n")
        assert one.run("echo 4 >>/data/dir/file && echo 5 >>/data/new/file && ls /data/dir").stdout == (
            "deep\nfile\nroots\n"
        )
        assert other.run("cat /d/dir/file /reads/new/file").stdout == "3\n4\nnew\n5\n"
        refused = other.run("mount -o remount,rw /reads; touch /reads/more", user="root")
        assert "Read-only file system" in refused.stderr
    Volumes.delete("shared")


def test_an_image_that_such_sandboxes_used_is_as_it_was(engine_home: Path) -> None:
    # Other homes share it.
    (before,) = Images.verify("base").parts
    Volumes.create("mine")
    point = f"/volume-{secrets.token_hex(4)}"
    with Sandbox.create(volumes={f"{point}/deep": "mine"}) as sandbox:
        sandbox.run(f"echo 1 >{point}/deep/file && touch {point}/beside", user="root").check()
        sandbox.suspend()
        assert sandbox.run(f"cat {point}/deep/file && ls {point}").stdout == "1\nbeside\ndeep\n"
    (after,) = Images.verify("base").parts
    assert not (Path(after.path) / point[1:]).exists()
    assert after.damages == before.damages
    Volumes.delete("mine")


def crash(sandbox: Sandbox) -> None:
    """End the processes of its machine as the host's OOM killer would, and wait until that was noticed."""
    home = Home(Path(os.environ["ATOLL_HOME"]))
    holder = find_holder(home)
    assert holder is not None
    # Machines' directories are seen in the holder's mount namespace only.
    consoles = Path(f"/proc/{holder.pid}/root{home.run}").glob("m/*/console.log")
    (machine,) = [path.parent.name for path in consoles if sandbox.id in os.readlink(path)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and f"{home.run}/m/{machine}".encode() in _command_line(entry):
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)
    deadline = time.monotonic() + CRASH_S
    while Sandbox.get(sandbox.id).state != "crashed" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert Sandbox.get(sandbox.id).state == "crashed"


def _command_line(process: Path) -> bytes:
    try:
        return (process / "cmdline").read_bytes()
    except OSError:
        return b""


def test_a_disk_that_is_in_the_memory_is_not_kept_without_it(engine_home: Path) -> None:
    with pytest.raises(UnsupportedError):
        Sandbox.create(lifecycle=Lifecycle(ttl_s=60, on_expiry="stop"))
    with Sandbox.create(lifecycle=Lifecycle(ttl_s=600, on_expiry="suspend")) as sandbox:
        start_counter(sandbox)
        with pytest.raises(UnsupportedError):
            sandbox.suspend(memory=False)
        assert sandbox.set_lease(0).state == "suspended"
        with pytest.raises(UnsupportedError):
            sandbox.resume(memory=False)
        assert count(sandbox) == 2
