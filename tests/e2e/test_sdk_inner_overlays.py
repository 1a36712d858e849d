"""Calls that ended the guest's kernel or stopped it: in overlays mounted inside, with watches for one event, links."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from atoll import Sandbox

IN_MEMORY = """
set -e
cd "$(mktemp -d /tmp/overlay.XXXX)"
mkdir -p l/d/e l/both u w m; echo lower > l/f; echo x > l/d/e/x; echo x > l/both/x
unshare -Urm sh -ec '
mount -t overlay o -o lowerdir=$PWD/l,upperdir=$PWD/u,workdir=$PWD/w m
cd m
mv f g; test ! -e f; cat g; rm g
mkdir q; mv q r; mkdir q; rmdir q
mv d d2; test ! -e d; cat d2/e/x; mkdir d; mv d2 d/d3; rm -r d
mv both b; mkdir both; ls both; rmdir both; mkdir new; mv new both; ls both; rm -r b both r
ls
'
find u -type c | sort | tr "\\n" " "
"""

ON_THE_DISK = """
cd "$(mktemp -d ~/overlay.XXXX)"
mkdir l u w m; echo lower > l/f; mkdir l/d
unshare -Urm sh -c '
mount -t overlay o -o lowerdir=l,upperdir=u,workdir=w m 2>/dev/null || echo refused
mount -t overlay o -o lowerdir=$PWD/l,upperdir=$PWD/u,workdir=$PWD/w m
cd m
mv f g; mv d e; rm f; rmdir d
echo more >> f; mkdir new; mv new newer; rmdir newer; touch n; mv n o; rm o
cat f; ls
' 2>&1
ls u
"""

# Each of these deadlocked the kernel: the watch goes while the directory is locked.
ONE_SHOT = """
import ctypes, os, sys, tempfile
libc = ctypes.CDLL(None, use_errno=True)
ONESHOT, CREATE, DELETE_SELF, ATTRIB, DELETE, MOVED = 1 << 31, 0x100, 0x400, 0x4, 0x200, 0xC0
os.chdir(tempfile.mkdtemp(dir=sys.argv[1]))
def watched(path, *calls):
    for mask in (CREATE | DELETE_SELF, ATTRIB | DELETE, DELETE | MOVED, CREATE | DELETE_SELF | ATTRIB | DELETE | MOVED):
        watcher = libc.inotify_init1(os.O_NONBLOCK)
        if not os.path.lexists(path):
            os.mkdir(path)
        assert libc.inotify_add_watch(watcher, path.encode(), ctypes.c_uint32(mask | ONESHOT)) > 0
        for call, *arguments in calls:
            call(*arguments)
        if os.path.isdir(path):
            os.rmdir(path)
        os.close(watcher)
def write(path):
    open(path, "w").close()
watched("d", (os.mkdir, "d/e"), (os.rmdir, "d/e"), (os.rmdir, "d"))
watched("d", (write, "d/f"), (os.unlink, "d/f"))
watched("d", (write, "d/f"), (write, "g"), (os.link, "d/f", "d/h"), (os.rename, "g", "d/f"), (os.rename, "d/h", "h"),
        (os.unlink, "d/f"), (os.unlink, "h"))
watched("d", (os.mkdir, "e"), (os.rename, "e", "d"))
for name in ("f", "g"):
    write(name)
    watcher = libc.inotify_init1(os.O_NONBLOCK)
    assert libc.inotify_add_watch(watcher, b"f", ctypes.c_uint32(ATTRIB | DELETE_SELF | CREATE | ONESHOT)) > 0
    write("other")
    os.rename("other", "f") if name == "f" else os.unlink("f")
print("done")
"""

LINKED = """
import os, socket, stat
os.chdir(os.path.expanduser("~"))
bound = socket.socket(socket.AF_UNIX)
bound.bind("one")
bound.listen()
os.link("one", "two")
assert os.stat("one").st_nlink == os.stat("two").st_nlink == 2 and os.path.samefile("one", "two")
os.unlink("one")
assert stat.S_ISSOCK(os.stat("two").st_mode) and os.stat("two").st_nlink == 1
open("taken", "w").close()
try:
    os.link("two", "taken")
except FileExistsError:
    pass
os.mkfifo("pipe")
os.link("pipe", "tube")
os.rename("tube", "pipe")
input()
client = socket.socket(socket.AF_UNIX)
client.connect("two")
client.sendall(b"through the link")
print(bound.accept()[0].recv(100).decode())
"""


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


@pytest.mark.parametrize("user", ["user", "root"])
def test_an_overlay_with_its_upper_layer_in_memory_works(sandbox: Sandbox, user: str) -> None:
    shown = sandbox.run(IN_MEMORY, user=user, timeout_s=30).check().stdout
    assert shown == "lower\nx\nu/both u/d u/f "


@pytest.mark.parametrize("user", ["user", "root"])
def test_an_overlay_with_its_upper_layer_on_the_disk_hides_no_names(sandbox: Sandbox, user: str) -> None:
    shown = sandbox.run(ON_THE_DISK, user=user, timeout_s=30).check().stdout
    assert shown.startswith("refused\n")
    assert shown.count("Operation not permitted") == 4
    assert shown.endswith("lower\nmore\nd\nf\nd\nf\n")


@pytest.mark.parametrize("place", ["/home/user", "/tmp"])
def test_a_watch_may_end_with_its_first_event(sandbox: Sandbox, place: str) -> None:
    done = sandbox.exec(["python3", "-c", ONE_SHOT, place], timeout_s=20)
    assert done.check().stdout == "done\n"


def test_a_watch_in_an_overlay_may_end_with_its_first_event(sandbox: Sandbox) -> None:
    sandbox.files.write("/var/tmp/one_shot.py", ONE_SHOT, user="root", mode=0o644)
    script = (
        "cd $(mktemp -d /tmp/overlay.XXXX); mkdir l u w m; unshare -Urm sh -ec 'mount -t overlay o "
        "-o lowerdir=$PWD/l,upperdir=$PWD/u,workdir=$PWD/w m; python3 /var/tmp/one_shot.py m'"
    )
    assert sandbox.run(script, timeout_s=20).check().stdout == "done\n"


def test_a_socket_on_the_disk_may_have_two_names_also_over_a_sleep(sandbox: Sandbox) -> None:
    linked = sandbox.processes.start(["python3", "-c", LINKED], stdin=True)
    sandbox.suspend()
    linked.write_stdin("\n")
    done = linked.wait()
    assert (done.exit_code, done.stdout) == (0, "through the link\n"), done.stderr
