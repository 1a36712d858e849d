"""Volumes: what several sandboxes and the host share."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests import homes
from tests.e2e.command_line import atoll, said

from atoll import Limits, Sandbox, VolumeMount, Volumes
from atoll.errors import FileError, FileMissingError, InvalidSpecError, NotFoundError

pytestmark = pytest.mark.twice

PATIENCE_S = 120.0

# Opens files of a volume in all ways, says so, and tells what has become of them when it is asked.
HOLDER = """
import mmap, os, time
os.chdir("/data/dir")
opened = {name: os.open("/data/" + name, os.O_RDWR) for name in ("stays", "goes", "replaced", "becomes", "dir/in")}
own = opened["own"] = os.open("/data/own", os.O_RDWR | os.O_CREAT)
os.write(own, b"own")
os.unlink("/data/own")
mapped = mmap.mmap(os.open("/data/mapped", os.O_RDWR), 4096)
opened["dir"] = os.open(".", os.O_RDONLY)
open("/tmp/ready", "w").close()
while not os.path.exists("/tmp/go"):
    time.sleep(0.05)

def told(name, act):
    try:
        print(name, act())
    except OSError as error:
        print(name, type(error).__name__, error.errno)

for name, fd in opened.items():
    if name != "dir":
        told(name + " read", lambda: os.pread(fd, 100, 0).decode().strip())
        told(name + " write", lambda: os.pwrite(fd, b"W", 0))
    told(name + " stat", lambda: os.fstat(fd).st_nlink)
told("list", lambda: os.listdir(opened["dir"]))
told("make", lambda: os.mkdir("more"))
told("open", lambda: open("in"))
child = os.fork()
if not child:
    mapped[:1]
    os._exit(0)
print("mapped", os.waitpid(child, 0)[1])
"""
ESTALE = 116


@pytest.fixture
def volume(module_home: Path) -> Iterator[str]:
    info = Volumes.create("data")
    yield info.volume_id
    for sandbox in list(Sandbox.list()):
        with Sandbox.connect(sandbox.sandbox_id, wake=False) as handle:
            handle.kill()
    Volumes.delete(info.volume_id)


def wait_for(sandbox: Sandbox, path: str) -> None:
    line = f"until [ -e {path} ]; do sleep 0.1; done"
    assert sandbox.run(line, timeout_s=PATIENCE_S).exit_code == 0


def test_what_one_sandbox_writes_the_others_and_the_host_see_at_once(volume: str) -> None:
    files = Volumes.files("data")
    with (
        Sandbox.create(volumes={"/data": "data"}) as one,
        Sandbox.create(volumes={"/mnt/shared": volume}, network="none") as other,
    ):
        assert one.info().volumes == {"/data": VolumeMount(volume)}
        one.run("echo 1 >/data/file && mkdir /data/dir").check()
        assert other.run("cat /mnt/shared/file && stat -c %U /mnt/shared/file").stdout == "1\nuser\n"
        other.run("echo 22 >>/mnt/shared/file && mv /mnt/shared/file /mnt/shared/dir/moved").check()
        assert one.run("cat /data/dir/moved; ls /data").stdout == "1\n22\ndir\n"
        assert files.read("dir/moved") == "1\n22\n"
        files.write("dir/moved", "from outside")
        assert one.run("cat /data/dir/moved").stdout == "from outside"
        mapper = (
            'import mmap; f = open("/data/map", "r+b"); m = mmap.mmap(f.fileno(), 4); m[:] = b"seen"; input()'
        )
        files.write("map", "none", mode=0o666)
        program = one.processes.start(["python3", "-c", mapper], stdin=True)
        until = "until grep -q seen /mnt/shared/map; do sleep 0.1; done"
        assert other.run(until, timeout_s=PATIENCE_S).exit_code == 0
        program.write_stdin("\n")
        assert program.wait().exit_code == 0


def test_a_volume_keeps_its_files_and_open_ones_go_on_through_sleep_fork_and_rollback(volume: str) -> None:
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        sandbox.processes.start("exec 3>>/data/log; while :; do echo tick >&3; sleep 0.1; done")
        wait_for(sandbox, "/data/log")
        snapshot = sandbox.snapshot()
        sandbox.suspend()
        with Sandbox.create(volumes={"/data": "data"}, network="none") as other:
            other.run(": >/data/log").check()
        sandbox.resume()
        assert sandbox.run("until [ -s /data/log ]; do sleep 0.1; done", timeout_s=PATIENCE_S).exit_code == 0
        sandbox.run("echo kept >/data/after").check()
        (fork,) = sandbox.fork()
        with fork:
            fork.run("cat /data/after && echo fork >/data/forked").check()
        sandbox.rollback(snapshot.snapshot_id)
        assert sandbox.run("cat /data/after /data/forked").stdout == "kept\nfork\n"
        with Sandbox.create(snapshot) as restored:
            assert restored.run("cat /data/after").stdout == "kept\n"


@pytest.mark.parametrize("seen", ["while it sleeps", "while it runs"])
def test_what_others_took_away_is_stale_and_neither_sleep_nor_waking_fails(volume: str, seen: str) -> None:
    files = Volumes.files(volume)
    for name in ("stays", "goes", "replaced", "becomes", "dir/in", "mapped"):
        files.write(name, name.ljust(4096), mode=0o666)
    files.set_attributes("dir", mode=0o777)
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        sandbox.files.write("holder.py", HOLDER)
        program = sandbox.processes.start("python3 holder.py")
        wait_for(sandbox, "/tmp/ready")
        if seen == "while it sleeps":
            sandbox.suspend()
        for name in ("goes", "becomes", "dir", "mapped"):
            files.delete(name)
        files.mkdir("becomes")
        files.write("replaced", "by another")
        if seen == "while it runs":
            # Now its kernel knows.
            sandbox.run("ls -lR /data").check()
            sandbox.suspend()
        sandbox.resume()
        sandbox.suspend()
        (fork,) = sandbox.fork()
        with fork:
            fork.run("touch /tmp/go && ls /data").check()
        sandbox.run("touch /tmp/go").check()
        lines = dict(
            line.rsplit(" ", 1) if " OS" not in line else line.split(" OSError ") for line in outcome(program)
        )
    stale = {f"{name} {act}" for name in ("goes", "becomes", "dir/in") for act in ("read", "write", "stat")}
    stale |= {f"replaced {act}" for act in ("read", "write", "stat")}
    stale |= {"dir stat", "list", "make", "open"}
    assert {name for name, value in lines.items() if value == str(ESTALE)} == stale
    assert (lines["stays write"], lines["own read"], lines["own write"]) == ("1", "own", "1")
    assert lines["mapped"] == str(int(signal.SIGBUS))


@pytest.mark.parametrize("lost", ["one", "two"])
def test_a_file_goes_on_by_the_name_that_others_have_left_it(volume: str, lost: str) -> None:
    script = (
        "import os; one = open('/data/one', 'w+b', buffering=0); one.write(b'old'); os.link('/data/one', '/data/two');"
        "two = open('/data/two', 'r+b', buffering=0); print('ready', flush=True); input(); one.write(b'+new');"
        "print(two.read().decode(), *os.listdir('/data'), flush=True)"
    )
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        with sandbox.processes.start(["python3", "-c", script], stdin=True, stream=True) as process:
            assert next(iter(process)).text == "ready\n"
        sandbox.suspend()
        Volumes.files(volume).delete(lost)
        for _ in range(3):  # In which order the names are looked for is chance.
            sandbox.resume()
            sandbox.suspend()
        program = sandbox.processes.attach(process.pid)
        program.write_stdin("\n")
        left = "two" if lost == "one" else "one"
        assert program.wait(timeout_s=PATIENCE_S).stdout.endswith(f"old+new {left}\n")


def outcome(program: object) -> list[str]:
    result = program.wait()  # type: ignore[attr-defined]
    assert result.exit_code == 0, result.stderr
    return result.stdout.splitlines()  # type: ignore[no-any-return]


def test_a_volume_is_no_part_of_the_disk_and_its_limit(volume: str) -> None:
    with Sandbox.create(volumes={"/data": "data"}, limits=Limits(disk_mib=20, files=400)) as sandbox:
        sandbox.run(
            "head -c 60M /dev/zero >/data/big && mkdir /data/many && cd /data/many && touch $(seq 800)"
        ).check()
        sandbox.run(
            "head -c 60M /dev/zero >/data/held && exec 3</data/held && rm /data/held && sleep 0"
        ).check()
        sandbox.run("head -c 10M /dev/zero >small").check()
        assert "No space left" in sandbox.run("head -c 60M /dev/zero >big").stderr


def test_a_crash_costs_nothing_that_is_in_a_volume(volume: str, module_home: Path) -> None:
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        sandbox.run("echo dear >/data/file").check()
        homes.kill_machines(module_home)
        deadline = time.monotonic() + PATIENCE_S
        while sandbox.info().state != "crashed" and time.monotonic() < deadline:
            time.sleep(0.05)
        with Sandbox.connect(sandbox.id) as again:
            assert again.run("cat /data/file; echo more >>/data/file").stdout == "dear\n"
    assert Volumes.files("data").read("file") == "dear\nmore\n"


def test_the_root_of_a_volume_is_for_every_user_and_what_it_holds_has_owners(volume: str) -> None:
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        sandbox.run("mkdir /data/mine && chmod 700 /data/mine && sudo sh -c 'echo 1 >/data/roots'").check()
        assert sandbox.run("stat -c '%U %a' /data/mine /data/roots").stdout == "user 700\nroot 644\n"
        assert sandbox.run("echo 2 >/data/roots").exit_code != 0
        made = Volumes.files(volume).write("given", "x", uid=0, gid=0, mode=0o600)
        assert (made.uid, made.mode) == (0, 0o600)
        assert sandbox.run("cat /data/given").exit_code != 0
        assert sandbox.run("sudo cat /data/given").stdout == "x"


def test_nothing_that_a_guest_puts_there_leads_the_host_astray(volume: str, tmp_path: Path) -> None:
    files = Volumes.files(volume)
    (tmp_path / "secret").write_text("of the host")
    with Sandbox.create(volumes={"/data": "data"}) as sandbox:
        made = f"""cd /data && ln -s {tmp_path} out && ln -s ../../../../../.. up && ln -s /proc/self/root magic
            ln -s /etc/passwd file && mkfifo pipe; mkdir -p a/b && ln -s a/b in && echo hi >a/b/c"""
        sandbox.run(made).check()
        for path in ("out/secret", "up/etc/passwd", "magic/etc/passwd", "file", "pipe"):
            with pytest.raises(FileError):
                files.read(path)
        for path in ("out/new", "up/tmp/new"):
            with pytest.raises(FileError):
                files.write(path, "x", parents=False)
            with pytest.raises(FileMissingError):
                files.delete(path)
        assert files.read("in/c") == "hi\n"
        assert {entry.path: entry.target for entry in files.list(depth=9)}["/file"] == "/etc/passwd"
        for entry in files.list():
            files.delete(entry.path)
        # A pipe is a matter of the guest's kernel alone.
        assert sandbox.run("ls -A /data").stdout == "pipe\n"
    assert [path.name for path in tmp_path.iterdir()] == ["secret"]


def test_a_large_file_passes_both_ways_in_pieces(volume: str) -> None:
    files = Volumes.files(volume)
    assert files.write("dir/big", (bytes([n]) * (1 << 20) for n in range(64))).size_bytes == 64 << 20
    sizes = [len(piece) for piece in files.read_stream("/dir/big")]
    assert sum(sizes) == 64 << 20
    assert max(sizes) <= 1 << 20

    def breaks_off() -> Iterator[bytes]:
        yield b"new"
        raise RuntimeError("the client fails")

    with pytest.raises(RuntimeError):
        files.write("dir/big", breaks_off())
    assert files.stat("dir/big").size_bytes == 64 << 20
    assert [entry.name for entry in files.list("dir")] == ["big"]


# Every way to change a volume; prints those that do not fail with EROFS.
CHANGES = """
import errno, os
ways = {
    "make": lambda: open("/data/new", "x"),
    "write": lambda: os.open("/data/file", os.O_RDWR),
    "truncate": lambda: os.truncate("/data/file", 0),
    "remove": lambda: os.unlink("/data/file"),
    "rename": lambda: os.rename("/data/file", "/data/other"),
    "link": lambda: os.link("/data/file", "/data/other"),
    "symlink": lambda: os.symlink("file", "/data/other"),
    "mkdir": lambda: os.mkdir("/data/other"),
}
for name, way in ways.items():
    try:
        way()
        print(name, "worked")
    except OSError as error:
        if error.errno != errno.EROFS:
            print(name, error)
"""
REMOUNT = (
    "mount -o remount,rw /data && mkdir -p /mnt/b && mount --bind /data /mnt/b && mount -o remount,rw /mnt/b"
)


def holds(sandbox: Sandbox) -> None:
    """Nobody inside changes the volume at /data, which can be read."""
    assert sandbox.exec(["python3", "-c", CHANGES], user="root").check().stdout == ""
    assert sandbox.run("cat /data/file").stdout == "kept\n"


def test_a_read_only_mount_holds_whoever_writes_inside_and_whatever_happens_to_the_sandbox(
    volume: str,
) -> None:
    files = Volumes.files(volume)
    files.write("file", "kept\n", mode=0o666)
    mount = VolumeMount("data", read_only=True)
    with Sandbox.create(volumes={"/data": mount}, network="none") as sandbox:
        assert sandbox.info().volumes == {"/data": VolumeMount(volume, read_only=True)}
        holds(sandbox)
        snapshot = sandbox.snapshot()
        sandbox.run(REMOUNT, user="root").check()
        holds(sandbox)
        assert sandbox.run("echo x >/mnt/b/file", user="root").exit_code != 0
        sandbox.suspend()
        files.write("more", "meanwhile")
        sandbox.resume()
        holds(sandbox)
        assert sandbox.run("cat /data/more").stdout == "meanwhile"
        (fork,) = sandbox.fork()
        with fork:
            holds(fork)
        sandbox.rollback(snapshot.snapshot_id)
        holds(sandbox)
    with pytest.raises(InvalidSpecError):
        Sandbox.create(snapshot, volumes={"/data": "data"})
    with Sandbox.create(snapshot) as restored:
        holds(restored)
        restored.run(REMOUNT, user="root").check()
        holds(restored)
    assert {entry.path: entry.mode for entry in files.list()} == {"/file": 0o666, "/more": 0o644}


def test_a_guests_kernel_has_only_read_only_descriptors_of_a_read_only_mount(
    volume: str, module_home: Path
) -> None:
    if os.geteuid():
        pytest.skip("only root of the host sees the descriptors of others")
    data = module_home / "volumes" / volume / "data"
    with Sandbox.create(volumes={"/data": VolumeMount("data", read_only=True)}, network="none"):
        seen = 0
        for held in Path("/proc").glob("[0-9]*/fd/*"):
            with contextlib.suppress(OSError):
                if int(held.parts[2]) != os.getpid() and held.samefile(data):
                    seen += 1
                    with pytest.raises(OSError, match="Read-only file system"):
                        (held / "new").touch()
    assert seen > 0
    assert list(data.iterdir()) == []


def test_volumes_on_the_command_line(module_home: Path) -> None:
    volume = said("volume", "create", "shared", "--quota", "1024")
    mounts = ("--volume", "shared:/data", "--volume", "shared:/in:ro")
    said("create", "--name", "mounts", *mounts)
    assert said("exec", "mounts", "--", "sh", "-c", "echo hi > /data/x; rm /in/x 2>&1; ls /in").endswith(
        "\nx"
    )
    assert "shared at /in, read-only" in said("info", "mounts")
    assert json.loads(said("info", "--json", "mounts"))["volumes"] == {
        "/data": {"volume": volume, "read_only": False},
        "/in": {"volume": volume, "read_only": True},
    }
    assert "1.0 GiB" in said("volume", "ls")
    assert json.loads(said("volume", "set", "shared", "--quota", "off", "--json"))["quota_mib"] is None
    refused = atoll("volume", "delete", "shared")
    assert (refused.returncode, b"mounts" in refused.stderr) == (125, True)
    said("kill", "mounts")
    said("volume", "delete", "shared")
    with pytest.raises(NotFoundError):
        Volumes.get("shared")
    assert json.loads(said("volume", "ls", "--json")) == []
