from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import time
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import NO_LIMIT, AtollError, Limits, Sandbox, Snapshots, VolumeMount, Volumes
from atoll.errors import ExecFailedError, InvalidSpecError, SandboxCrashedError, SandboxNotFoundError
from atoll.host import Home, cgroup_root

pytestmark = pytest.mark.twice

# What `df` shows of what has no limit, in MiB.
ENDLESS_MIB = 1 << 30
# All sizes that each mount tells: blocks in bytes, then files.
MOUNTS = """
import os
for line in open("/proc/mounts"):
    path = line.split()[1]
    told = os.statvfs(path)
    blocks = (each * told.f_frsize for each in (told.f_blocks, told.f_bfree, told.f_bavail))
    print(path, *blocks, told.f_files, told.f_ffree, told.f_favail)
"""

FORKS = """
import os, time
made = 0
try:
    while made < 5000:
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        made += 1
except BlockingIOError:
    print(made)
"""
OPENS = """
held = []
try:
    while len(held) < 5000:
        held.append(open("/etc/passwd"))
except OSError as error:
    print(len(held), error.errno)
"""
HOLDS_DELETED = """
import os
held = []
try:
    while len(held) < 100:
        file = open("held", "wb")
        open("other", "wb").close()
        END
        held.append(file)
        file.write(bytes(1 << 20))
        file.flush()
except OSError as error:
    print(len(held), error.errno, flush=True)
    os._exit(0)
"""
ATTRIBUTES = """
import os
os.close(os.open("file", os.O_CREAT))
held = 0
try:
    for number in range(200):
        os.setxattr("file", f"user.{number}", bytes(500))
        held += 500
    os.setxattr("file", "user.big", bytes(60000))
except OSError as error:
    print(held, error.errno)
os.setxattr("file", "user.0", bytes(400))
os.removexattr("file", "user.1")
print(len(os.listxattr("file")))
"""


def test_a_disk_takes_what_it_may_and_more_once_something_is_deleted(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20, files=400)) as sandbox:
        filled = sandbox.run("head -c 100M /dev/zero >big; stat -c %s big; truncate -s 1G sparse")
        assert filled.exit_code == 1
        assert filled.stderr.count("No space left on device") == 2
        assert 18 << 20 < int(filled.stdout) <= 20 << 20
        sandbox.run("rm big").check()
        until(lambda: sandbox.run("head -c 10M /dev/zero >half").exit_code == 0)
        assert sandbox.run("mkdir many; for i in $(seq 500); do : >many/$i || break; done").exit_code == 0
        count = int(sandbox.run("ls many | wc -l").stdout)
        assert 300 < count < 400
        sandbox.run("rm -r many").check()
        until(lambda: sandbox.run("touch fine").exit_code == 0)
        # A file may have any number of names, which fill directories.
        linked = sandbox.run("for i in $(seq 500); do ln fine name$i || break; done")
        assert "No space left on device" in linked.stderr
        assert 300 < int(sandbox.run("stat -c %h fine").stdout) < 400


def test_df_shows_the_limit_and_what_is_left_of_it(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=100)) as sandbox:
        whole, used, left = _df(sandbox)
        assert (whole, used < 5, left > 95) == (100, True, True)
        sandbox.run("head -c 30M /dev/zero >file").check()
        assert (_df(sandbox)[1] - used, left - _df(sandbox)[2]) == (30, 30)
        sandbox.suspend()
        assert _df(sandbox)[0] == 100
        with sandbox.fork()[0] as fork:
            assert _df(fork)[0] == 100
        sandbox.run("rm file").check()
        until(lambda: _df(sandbox)[1] < 10)
        sandbox.set_limits(Limits(disk_mib=200))
        until(lambda: _df(sandbox)[0] == 200)
        sandbox.set_limits(Limits(disk_mib=NO_LIMIT))
        until(lambda: _df(sandbox) == (ENDLESS_MIB, 0, ENDLESS_MIB))
        assert sandbox.stats().limits.disk_mib is None


def test_no_mount_tells_how_large_or_full_the_disk_of_the_host_is(module_home: Path) -> None:
    Volumes.create("wide")
    mounts: dict[str, str | VolumeMount] = {"/wide": "wide", "/in": VolumeMount("wide", read_only=True)}
    host = os.statvfs(module_home)
    with Sandbox.create(volumes=mounts, network="none", limits=Limits(disk_mib=NO_LIMIT)) as sandbox:
        told = _mounts(sandbox)
        assert {"/", "/.atoll", "/wide", "/in", "/tmp"} <= told.keys()
        for sizes in told.values():
            assert host.f_blocks * host.f_frsize not in sizes
            assert host.f_files not in sizes
        endless = ENDLESS_MIB << 20
        assert told["/"] == told["/wide"] == [endless] * 3 + [endless >> 12] * 3
        # As with /proc: what has no size is not in the table of `df`.
        assert told["/.atoll"] == told["/in"] == [0] * 6
        sandbox.suspend()
        assert (
            _mounts(sandbox).items()
            >= {path: told[path] for path in ("/", "/.atoll", "/wide", "/in")}.items()
        )
    Volumes.delete("wide")


def test_a_disk_has_a_default_limit_that_holds_in_sleep_and_in_copies_and_leaves_a_tenth_of_the_host_free(
    module_home: Path,
) -> None:
    host = shutil.disk_usage(module_home)
    wanted = min(20_480, host.total // 100 * 90 >> 20)
    with Sandbox.create() as sandbox, sandbox.fork()[0] as fork:
        for each in (sandbox, fork):
            info = each.info()
            assert (info.limits.disk_mib, info.limits_in_force.disk_mib) == (None, wanted)
            assert each.stats().limits.disk_mib == wanted
            # Its size alone counts, so this takes no time; more than that the host may not have.
            refused = each.run(f"truncate -s {wanted + 1}M sparse")
            assert (refused.exit_code, "No space left" in refused.stderr) == (1, True)
            assert _df(each)[0] == wanted
            each.suspend()
            assert each.run(f"truncate -s {wanted + 1}M sparse").exit_code == 1
            assert each.run("head -c 1M /dev/zero >file && echo fits").stdout == "fits\n"


@pytest.mark.parametrize("ends", ["os.unlink('held')", "os.rename('other', 'held')"])
def test_a_disk_limit_counts_files_that_are_open_but_deleted(module_home: Path, ends: str) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20)) as sandbox:
        program = HOLDS_DELETED.replace("END", ends)
        held, number = map(int, sandbox.exec(["python3", "-c", program]).stdout.split())
        assert (held <= 21, number) == (True, 28)
        until(lambda: sandbox.run("head -c 10M /dev/zero >half").exit_code == 0)


def test_a_disk_limit_leaves_a_file_a_page_of_attributes(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20)) as sandbox:
        # Until the disk has been measured for the first time nothing is refused.
        assert sandbox.run(
            "head -c 30M /dev/zero >big; while [ $? = 0 ]; do head -c 30M /dev/zero >>big; done; rm big"
        )
        result = sandbox.exec(["python3", "-c", ATTRIBUTES])
        held, number, left = map(int, result.stdout.split())
        assert (3000 <= held < 4096, number) == (True, 28), result.stderr
        assert left == held // 500 - 1


def test_processes_and_open_files_end_at_their_limit_and_the_agent_still_answers(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(processes=60, open_files=300)) as sandbox:
        forked = sandbox.exec(["python3", "-c", FORKS], timeout_s=240)
        assert 30 < int(forked.stdout) <= 60
        assert sandbox.exec(["echo", "still"]).stdout == "still\n"
        # Those of the default user are refused; those of root, as whom the agent runs, get some more.
        opened, number = map(int, sandbox.exec(["python3", "-c", OPENS], user="user").stdout.split())
        assert (opened < 300, number) == (True, 23)
        assert sandbox.exec(["echo", "still"]).stdout == "still\n"


def test_a_program_is_told_the_limits_that_hold_and_may_open_as_much_as_on_a_host(module_home: Path) -> None:
    line = "ulimit -n; ulimit -Hn; ulimit -u; ulimit -Hu; cat /proc/sys/fs/file-max"
    hard = 1_048_576
    with Sandbox.create(limits=Limits(processes=300, open_files=5000)) as sandbox:
        for user in ("user", "root"):
            told = [1024, hard, 300, 300, 5000]
            assert [int(word) for word in sandbox.run(line, user=user).stdout.split()] == told
            assert [int(word) for word in sandbox.exec(["bash", "-c", line]).stdout.split()] == told
        limits = sandbox.run("cat /proc/self/limits").stdout
        assert limits.split("Max processes")[1].split()[:2] == ["300", "300"]
        # Whoever needs more asks for it, as on a host.
        assert sandbox.run("ulimit -n 4000 && ulimit -n").stdout == "4000\n"
        sandbox.set_limits(Limits(processes=200, open_files=6000))
        changed = [1024, hard, 200, 200, 6000]
        assert [int(word) for word in sandbox.run(line).stdout.split()] == changed
        sandbox.suspend()
        assert [int(word) for word in sandbox.run(line).stdout.split()] == changed
        with sandbox.fork()[0] as fork:
            assert [int(word) for word in fork.run(line).stdout.split()] == changed


def test_less_open_files_than_there_are_keep_no_sandbox_from_being_used_or_waking(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        hold = (
            "import time; held = [open('/dev/null') for _ in range(900)]; open('held', 'w'); time.sleep(1000)"
        )
        sandbox.processes.start(["python3", "-c", hold])
        sandbox.run("until test -e held; do sleep 0.05; done").check()
        sandbox.set_limits(Limits(open_files=100))
        as_root = ["sh", "-c", "cat /etc/hostname >/dev/null && echo still"]
        assert sandbox.exec(as_root, user="root").stdout == "still\n"
        for _ in range(2):
            sandbox.suspend()
            assert sandbox.exec(as_root, user="root").stdout == "still\n"
        opened, number = map(int, sandbox.exec(["python3", "-c", OPENS], user="root").stdout.split())
        assert (opened < 300, number) == (True, 23)
        # pkill only sends the signal: the files are open until the program has ended.
        ended = "pkill python3; while pgrep python3 >/dev/null; do sleep 0.05; done"
        sandbox.exec(["sh", "-c", ended], user="root").check()
        assert sandbox.exec(["echo", "less"]).stdout == "less\n"


def test_root_inside_cannot_lift_the_limit_of_processes(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(processes=60)) as sandbox:
        line = f"ulimit -u unlimited; exec python3 -c '{FORKS}'"
        forked = sandbox.run(line, user="root", timeout_s=240)
        assert int(forked.stdout) <= 60


def test_a_program_that_takes_all_memory_is_killed_and_its_sandbox_lives_or_says_why(
    module_home: Path,
) -> None:
    with Sandbox.create(limits=Limits(memory_mib=300)) as sandbox:
        hog = ["python3", "-c", "held = []\nwhile True: held.append(b'x' * (1 << 20))"]
        try:
            result = sandbox.exec(hog, timeout_s=240)
            assert result.exit_code == 137
            assert result.memory_kill is not None
            assert (result.memory_kill.name, result.memory_kill.limit_bytes) == ("python3", 300 << 20)
            assert 100 << 20 < result.memory_kill.held_bytes < 300 << 20
            with pytest.raises(ExecFailedError, match="memory limit of 300 MiB") as failed:
                result.check()
            assert failed.value.hint is not None and "memory_mib" in failed.value.hint
            until(lambda: "was killed: it held" in "".join(sandbox.logs()))
            # A shell's own end tells of what it had started; others tell of nothing.
            line = f"{shlex.join(hog)}; echo it ended with $?"
            result = sandbox.run(line, timeout_s=240)
            assert (result.stdout, result.memory_kill is not None) == ("it ended with 137\n", True)
            assert sandbox.run("kill -9 $$").memory_kill is None
            # Also one that nobody waited for.
            process = sandbox.processes.start(hog)
            sandbox.run(f"while kill -0 {process.pid} 2>/dev/null; do sleep 0.05; done", timeout_s=240)
            assert process.wait().memory_kill is not None
        except AtollError:  # on a very busy host the limit itself may strike first
            assert "memory limit" in (sandbox.info().reason or "".join(sandbox.logs()))
        assert sandbox.exec(["echo", "still"]).stdout == "still\n"


@pytest.mark.parametrize("held_mib", [0, 280])  # of 512, of which up to the half processes do not count
def test_memory_that_is_filled_after_a_long_rest_is_guarded_also_in_wakes_and_copies(
    module_home: Path, held_mib: int
) -> None:
    """The kernel wakes the agent, which does not look while there is room."""
    with Sandbox.create(limits=Limits(memory_mib=512)) as sandbox:
        hold = f"for at in /dev/shm /run; do head -c {held_mib // 2}M /dev/zero >$at/held; done"
        sandbox.run(hold, user="root").check()
        time.sleep(2)
        _fill(sandbox, 512)
        sandbox.suspend()
        _fill(sandbox, 512)
        with sandbox.fork()[0] as fork:
            time.sleep(1)
            _fill(fork, 512)
        sandbox.set_limits(Limits(memory_mib=400))
        _fill(sandbox, 400)


def _fill(sandbox: Sandbox, limit_mib: int) -> None:
    for _ in range(5):
        try:
            hog = ["python3", "-c", "held = []\nwhile True: held.append(b'x' * (1 << 20))"]
            result = sandbox.exec(hog, timeout_s=240)
            assert result.exit_code == 137
            # On a very busy host the limit itself may strike first: the program, or the whole sandbox.
            if result.memory_kill is None:
                continue
            assert result.memory_kill.limit_bytes == limit_mib << 20
            assert sandbox.exec(["echo", "still"]).stdout == "still\n"
        except AtollError:
            assert "memory limit" in (sandbox.info().reason or "".join(sandbox.logs()))
        else:
            return
    pytest.fail("the agent guards nothing")


def test_memory_that_no_program_holds_ends_the_sandbox_and_the_reason_says_so(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(memory_mib=200)) as sandbox:
        fill = "for at in /tmp /dev/shm /run; do head -c 190M /dev/zero >$at/filler; done; sleep 600"
        with pytest.raises(SandboxCrashedError, match="memory limit of 200 MiB"):
            sandbox.run(fill, user="root", timeout_s=240)
        assert sandbox.exec(["echo", "again"]).stdout == "again\n"


def test_directories_in_memory_hold_half_of_the_memory_each(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(memory_mib=256)) as sandbox:
        sizes = sandbox.run("df -m --output=size /tmp /run /dev/shm | tail -n +2").stdout.split()
        assert sizes == ["128"] * 3
        assert "No space left on device" in sandbox.run("head -c 129M /dev/zero >/tmp/large").stderr


def test_what_is_read_and_written_and_sent_keeps_to_its_rate(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib_s=4, network_mib_s=1)) as sandbox:
        began_s = time.monotonic()
        sandbox.run("head -c 8M /dev/zero >file", timeout_s=240)
        assert time.monotonic() - began_s > 1.5
        began_s = time.monotonic()
        assert len(sandbox.files.read_bytes("/bin/bash")[: 2 << 20]) > 1 << 20
        assert time.monotonic() - began_s > 0.5


def test_limits_of_a_running_sandbox_change_at_once_and_its_copies_have_them(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=10)) as sandbox:
        sandbox.set_limits(Limits(disk_mib=30, processes=50))
        assert sandbox.info().limits == Limits(disk_mib=30, processes=50)
        until(lambda: sandbox.run("head -c 20M /dev/zero >file").exit_code == 0)
        stats = sandbox.stats()
        assert (stats.limits.processes, stats.held["processes"]) == (50, "hard")
        assert stats.limits.open_files is not None
        snapshot = sandbox.snapshot("limited")
        with sandbox.fork()[0] as fork:
            assert fork.info().limits == Limits(disk_mib=30, processes=50)
            assert int(fork.exec(["python3", "-c", FORKS], timeout_s=240).stdout) <= 50
        with Sandbox.create(snapshot, limits=Limits(processes=70)) as other:
            assert other.info().limits == Limits(disk_mib=30, processes=70)
        with pytest.raises(InvalidSpecError, match="processes is 1"):
            sandbox.set_limits(Limits(processes=1))
        assert sandbox.info().limits.processes == 50
    Snapshots.delete("limited")


def test_a_sandbox_is_killed_at_the_end_of_its_lifetime_even_asleep(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(lifetime_s=2)) as sandbox:
        with contextlib.suppress(AtollError):  # it may be gone already on a busy host
            sandbox.suspend()
        until(lambda: _gone(sandbox.id))


@pytest.mark.usefixtures("module_home")
def test_whole_processors_are_kept_to_with_and_without_a_cgroup() -> None:
    with Sandbox.create(limits=Limits(vcpus=1)) as sandbox:
        inside = int(sandbox.exec(["nproc"]).stdout)
        assert inside == 1 or cgroup_root(Home.default()) is not None
        assert sandbox.stats().held["vcpus"] == "hard"


def _df(sandbox: Sandbox) -> tuple[int, int, int]:
    """MiB of the disk as a program sees it: all, used, left."""
    whole, used, left = sandbox.run("df -m --output=size,used,avail / | tail -1").check().stdout.split()
    return int(whole), int(used), int(left)


def _mounts(sandbox: Sandbox) -> dict[str, list[int]]:
    """The sizes that each mount tells."""
    lines = sandbox.exec(["python3", "-c", MOUNTS]).check().stdout.splitlines()
    return {path: [int(size) for size in sizes] for path, *sizes in map(str.split, lines)}


def _gone(sandbox_id: str) -> bool:
    try:
        Sandbox.get(sandbox_id)
    except SandboxNotFoundError:
        return True
    return False
