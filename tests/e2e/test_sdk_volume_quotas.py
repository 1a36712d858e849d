"""A volume's quota holds whoever writes: sandboxes get ENOSPC, clients a QuotaError."""

from __future__ import annotations

import os
import shlex
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests import homes
from tests.waiting import until

from atoll import Sandbox, VolumeMount, Volumes
from atoll.errors import QuotaError
from atoll.host import Home

pytestmark = pytest.mark.twice

MIB = 1 << 20
FULL = "No space left on device"
# What each sandbox may add that a measurement has not seen: see docs/design/volumes.md.
CHUNK = 64 * MIB

# Writes small files for some seconds while all their directories get other names, over and over.
HIDES = """
import os, threading, time
directories = range(40)
for number in directories:
    os.mkdir(f"/data/{number}-0")
opened = [os.open(f"/data/{number}-0", os.O_DIRECTORY) for number in directories]
until = time.monotonic() + 6
def rename():
    turn = 0
    while time.monotonic() < until:
        for number in directories:
            os.rename(f"/data/{number}-{turn}", f"/data/{number}-{turn + 1}")
        turn += 1
threading.excepthook = lambda failed: os._exit(1)
renaming = threading.Thread(target=rename)
renaming.start()
number = 0
while time.monotonic() < until:
    number += 1
    try:
        file = os.open(str(number), os.O_WRONLY | os.O_CREAT, dir_fd=opened[number % len(opened)])
        os.write(file, bytes(65536))
        os.close(file)
    except OSError:
        pass
renaming.join()
"""


@pytest.fixture
def volume(module_home: Path) -> Iterator[Path]:
    info = Volumes.create("data", quota_mib=8)
    yield module_home / "volumes" / info.volume_id / "data"
    Volumes.delete("data")


def used_bytes(volume: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in volume.rglob("*"))


def write(sandbox: Sandbox, name: str, mib: int, at: str = "/data") -> str:
    """Write a file of the volume, and return what went wrong."""
    return sandbox.run(f"head -c {mib}M /dev/urandom >{at}/{name}").stderr


def accepts(sandbox: Sandbox, name: str, mib: int) -> bool:
    return not write(sandbox, name, mib)


def refuses(add: Callable[[], object]) -> bool:
    """Whether a client is refused. It waits for a measurement, but not for long: then what was known before counts."""
    try:
        made = add()
    except QuotaError as error:
        assert "'data' has no room for that" in str(error)
        return True
    for each in made if isinstance(made, list) else [made]:
        if isinstance(each, Sandbox):
            each.kill()
    return False


def test_a_full_volume_takes_no_write_until_something_goes(volume: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        sandbox.run("mkdir /data/d").check()
        assert write(sandbox, "a", 6) == ""
        assert FULL in write(sandbox, "b", 6)
        assert used_bytes(volume) <= 8 * MIB + CHUNK
        until(lambda: refuses(lambda: Volumes.files("data").write("more", "x" * MIB)))
        # What is there can be read, written over, linked, moved and removed.
        sandbox.run("cd /data && mv a d/ && dd if=/dev/urandom of=d/a bs=1M count=6 conv=notrunc").check()
        assert sandbox.run("stat -c %s /data/d/a").stdout == f"{6 * MIB}\n"
        sandbox.run("rm /data/b").check()
        sandbox.run("ln /data/d/a /data/again && rm /data/again").check()
        until(lambda: accepts(sandbox, "c", 1))
        with Sandbox.create(volumes={"/d": VolumeMount("data", read_only=True)}, network="none") as reader:
            assert reader.run("stat -c %s /d/c").stdout == f"{MIB}\n"


def test_a_file_without_a_name_takes_room_as_long_as_it_is_open(volume: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        held = sandbox.run(
            "exec 9>>/data/held; rm /data/held; head -c 7M /dev/zero >&9; "
            "sleep 1.5; head -c 4M /dev/zero >/data/more; exec 9>&-"
        )
        assert held.stderr.count(FULL) == 1
        until(lambda: accepts(sandbox, "then", 4))


def test_another_quota_counts_at_once_and_one_below_what_is_there_removes_nothing(volume: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        assert write(sandbox, "a", 7) == ""
        assert FULL in write(sandbox, "b", 4)
        Volumes.set_quota("data", 32)
        until(lambda: accepts(sandbox, "b", 4))
        Volumes.set_quota("data", 1)
        until(lambda: not accepts(sandbox, "c", 1))
        assert sandbox.run("stat -c %s /data/a").stdout == f"{7 * MIB}\n"
        until(lambda: refuses(lambda: Sandbox.create(volumes={"/data": "data"})))
        until(lambda: refuses(sandbox.fork))
        Volumes.set_quota("data", None)
        until(lambda: accepts(sandbox, "c", 40))


def test_df_shows_the_quota_and_what_is_left_of_it_whoever_writes(volume: Path) -> None:
    def df() -> list[int]:
        """MiB of the volume as a program sees it: all, used, left."""
        shown = sandbox.run("df -k --output=size,used,avail /data | tail -1").check().stdout.split()
        return [round(int(kib) / 1024) for kib in shown]

    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        assert df() == [8, 0, 8]
        assert write(sandbox, "a", 5) == ""
        assert df() == [8, 5, 3]
        Volumes.files("data").write("b", bytes(MIB))
        until(lambda: df() == [8, 6, 2])
        sandbox.run("rm /data/a").check()
        until(lambda: df() == [8, 1, 7])
        sandbox.suspend()
        assert df() == [8, 1, 7]
        Volumes.set_quota("data", 32)
        until(lambda: df() == [32, 1, 31])
        Volumes.set_quota("data", None)
        until(lambda: df() == [1 << 30, 0, 1 << 30])


def test_several_that_write_share_it_and_go_over_it_by_a_chunk_each_at_most(volume: Path) -> None:
    Volumes.set_quota("data", 64)
    with Sandbox.create(volumes={"/data": "data"}, network="none") as one, one.fork()[0] as other:
        loop = "i=0; while [ $i -lt 200 ]; do head -c 1M /dev/zero >>/data/$0; i=$((i+1)); done 2>/dev/null"
        writing = [
            each.processes.start(["sh", "-c", loop, name]) for each, name in ((one, "a"), (other, "b"))
        ]
        for each in writing:
            each.wait()
        assert 60 * MIB < used_bytes(volume) <= 64 * MIB + 2 * CHUNK
        one.run("rm -f /data/a /data/b").check()
        Volumes.set_quota("data", 8)
        until(lambda: accepts(other, "c", 2))
        other.suspend()
        until(lambda: FULL in write(one, "d", 8))
        # The file of the first may have gone over the quota, by the rest of its chunk.
        other.run("rm /data/c && truncate -s '<5M' /data/d").check()
        until(lambda: accepts(other, "e", 1), lambda: one.run("ls -l /data").stdout)
        until(lambda: FULL in write(other, "e", 9))
        assert used_bytes(volume) <= 8 * MIB + 2 * CHUNK


def test_a_file_that_grows_by_more_than_a_chunk_at_once_gets_what_it_needs(volume: Path) -> None:
    Volumes.set_quota("data", 200)
    with Sandbox.create(volumes={"/data": "data"}, network="none") as one, one.fork()[0] as other:
        one.run("truncate -s 150M /data/a").check()
        assert FULL in other.run("fallocate -l 100M /data/b").stderr
        one.run("rm /data/a").check()
        until(lambda: other.run("fallocate -l 150M /data/b").exit_code == 0)
        assert (volume / "b").stat().st_size == 150 * MIB


def test_a_program_that_renames_directories_all_the_time_gets_no_more(volume: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        sandbox.run(f"python3 -c {shlex.quote(HIDES)}").check()
        assert used_bytes(volume) <= 8 * MIB + CHUNK
        sandbox.run("rm -r /data/[0-9]-*").check()
        until(lambda: accepts(sandbox, "then", 1))


def test_a_mount_below_a_link_of_the_image_is_limited(volume: Path) -> None:
    # The image has /var/run as a link to /run.
    with Sandbox.create(volumes={"/var/run/data": "data"}, network="none") as sandbox:
        assert sandbox.run("readlink -f /var/run/data").stdout == "/run/data\n"
        assert write(sandbox, "a", 6, "/run/data") == ""
        assert FULL in write(sandbox, "b", 4, "/var/run/data")
        sandbox.suspend()
        assert FULL in write(sandbox, "c", 4, "/run/data")
        assert used_bytes(volume) <= 8 * MIB + CHUNK


def test_it_holds_without_a_supervisor_and_under_the_next_one(volume: Path, module_home: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}, network="none") as sandbox:
        sandbox.processes.start(["sh", "-c", "while :; do head -c 64k /dev/zero >>/data/a; sleep 0.01; done"])
        until(lambda: used_bytes(volume) > MIB)
        for line in homes.processes_of(Home(module_home)):
            pid, _, command = line.partition(": ")
            if "atoll.supervisor" in command:
                os.kill(int(pid), signal.SIGKILL)
        until(lambda: used_bytes(volume) > 4 * MIB)
        assert sandbox.info().state == "running"
        until(lambda: used_bytes(volume) > 7.5 * MIB)
        assert FULL in write(sandbox, "b", 2)
        assert used_bytes(volume) <= 8 * MIB + CHUNK
