"""Files that a program has open for writing: what it writes after an operation is where it was before."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from atoll import Process, Sandbox

pytestmark = pytest.mark.twice

PATIENCE_S = 120.0
# More than a fork copies while the guest runs, where it can freeze instead.
BIG = 80_000_000
# Opens files and writes to them, and once more when it reads a line, to files that may lie in another layer then.
WRITER = f"""
import json, mmap, os
def made(name, data=b"old"):
    file = open(name, "w+b", buffering=0)
    file.write(data)
    return file
def found(name):
    with open(name, "rb") as file:
        return file.read(9).decode()
os.chdir("/workspace")
big = made("big", os.urandom({BIG}))
log = open("log", "ab", buffering=0)
log.write(b"old")
write_only = os.open("write-only", os.O_WRONLY | os.O_CREAT)
mapped, mapped_later, viewed = made("mapped"), made("mapped-later"), made("viewed")
pages = mmap.mmap(mapped.fileno(), 3)
view = mmap.mmap(viewed.fileno(), 3, mmap.MAP_PRIVATE, mmap.PROT_READ)
assert view[:] == b"old"
deleted, renamed, replaced, shortened, touched, room, moved_data = map(made, (
    "deleted", "renamed", "replaced", "shortened", "touched", "room", "moved-data"))
linked, kept = made("linked"), open("linked", "rb", buffering=0)
os.link("linked", "link")
other = open("link", "r+b", buffering=0)
reader = open("log", "rb", buffering=0)
print("ready", flush=True)
input()
told = {{}}
log.write(b"+new")
told["appended"] = found("log") + " " + reader.read().decode()
os.fsync(log.fileno())
os.fsync(viewed.fileno())
os.pwrite(write_only, b"new", 0)
told["write-only"] = found("write-only")
pages[:] = b"new"
told["mapped"] = found("mapped")
later = mmap.mmap(mapped_later.fileno(), 3)
later[:] = b"new"
told["mapped later"] = found("mapped-later")
viewed.seek(0)
viewed.write(b"new")
told["viewed"] = view[:].decode()
os.unlink("deleted")
open("deleted", "w").write("other")
deleted.write(b"+new")
deleted.seek(0)
told["deleted"] = deleted.read().decode() + " " + found("deleted")
os.rename("renamed", "elsewhere")
renamed.write(b"+new")
told["renamed"] = found("elsewhere")
open("replacement", "w").write("other")
os.rename("replacement", "replaced")
replaced.write(b"+new")
replaced.seek(0)
told["replaced"] = replaced.read().decode() + " " + found("replaced")
shortened.truncate(1)
told["shortened"] = found("shortened")
os.utime(touched.fileno(), (5, 5))
os.fchmod(touched.fileno(), 0o640)
touched.write(b"+new")
told["touched"] = found("touched") + " " + oct(os.fstat(touched.fileno()).st_mode)
os.posix_fallocate(room.fileno(), 0, 5)
told["room"] = os.stat("room").st_size
moved_data.seek(0)
os.sendfile(moved_data.fileno(), reader.fileno(), 0, 3)
os.copy_file_range(reader.fileno(), moved_data.fileno(), 4, 3, 3)
told["moved data"] = found("moved-data")
linked.write(b"+new")
other.seek(0)
told["linked"] = other.read().decode() + " " + found("link") + " " + kept.read().decode()
big.write(b"new")
told["big"] = os.stat("big").st_size
print(json.dumps(told), flush=True)
"""
RIGHT = {
    "appended": "old+new old+new",
    "write-only": "new",
    "mapped": "new",
    "mapped later": "new",
    "viewed": "new",
    "deleted": "old+new other",
    "renamed": "old+new",
    "replaced": "old+new other",
    "shortened": "o",
    "touched": "old+new 0o100640",
    "room": 5,
    "moved data": "old+new",
    "linked": "old+new old+new old+new",
    "big": BIG + 3,
}


def start_writer(sandbox: Sandbox) -> Process:
    with sandbox.processes.start(["python3", "-c", WRITER], stdin=True, stream=True) as process:
        assert next(iter(process)).text == "ready\n"
    return process


def finish(sandbox: Sandbox, process: Process) -> dict[str, object]:
    """Have the writer go on, and return what it tells."""
    attached = sandbox.processes.attach(process.pid)
    attached.write_stdin("\n")
    result = attached.wait(timeout_s=PATIENCE_S).check()
    return dict(json.loads(result.stdout.splitlines()[-1]))


def suspend(sandbox: Sandbox) -> None:
    sandbox.suspend()


def freeze(sandbox: Sandbox) -> None:
    sandbox.fork(1)[0].kill()


def many(sandbox: Sandbox) -> None:
    for step in (freeze, suspend, Sandbox.snapshot, freeze, suspend):
        step(sandbox)


@pytest.mark.parametrize("operate", [suspend, freeze, many])
def test_a_program_writes_on_in_the_files_that_it_has_open(
    module_home: Path, operate: Callable[[Sandbox], None]
) -> None:
    with Sandbox.create() as sandbox:
        process = start_writer(sandbox)
        operate(sandbox)
        assert finish(sandbox, process) == RIGHT
        assert sandbox.run("cat log mapped elsewhere", cwd="/workspace").stdout == "old+newnewold+new"


def test_a_copy_of_a_program_writes_in_its_own_files(module_home: Path) -> None:
    with Sandbox.create() as sandbox:
        process = start_writer(sandbox)
        with sandbox.fork(1)[0] as copy:
            if os.geteuid() == 0:  # Layers are frozen: it shares the file until it writes to it.
                (upper,) = (module_home / "sandboxes" / copy.id).glob("*/upper")
                assert sum(path.lstat().st_blocks * 512 for path in upper.rglob("*")) < BIG / 10
            assert finish(copy, process) == RIGHT
            assert sandbox.run("cat log elsewhere", cwd="/workspace").stdout == "old"
        assert finish(sandbox, process) == RIGHT
