"""Guests that try to have more than their limits, or to end their kernel by them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.homes import kill_machines
from tests.waiting import until

from atoll import Limits, Sandbox
from atoll.errors import EngineError

pytestmark = pytest.mark.twice

# It takes what it gets, again and again.
FILLS = """
file, block = open("full", "ab", buffering=0), bytes(1 << 20)
while True:
    try:
        file.write(block)
    except OSError:
        pass
"""
# What a measuring has found of directories that change places is less than there is.
HIDES = """
import os, threading, time
for name in "abcyz":
    os.mkdir(name)
for number in range(400):
    open(f"c/{number}", "w").close()
held = 0
def add(path):
    global held
    try:
        with open(path, "wb", buffering=0) as file:
            for _ in range(4):
                file.write(bytes(1 << 18))
                held += 1 << 18
    except OSError:
        return False
    return True
for number in range(6):
    add(f"a/{number}")
    add(f"y/{number}")
def by_rename(here, there):
    os.rename(here, there)
def by_link(here, there):
    os.link(here, there)
    os.unlink(here)
def change_places():
    here, there = "a", "z"
    while True:
        for number in range(6):
            try:
                HOW(f"{here}/{number}", f"{there}/{number}")
            except OSError:
                pass  # a name takes room, too
        os.rename("y", "b/y")
        os.rename("b/y", "y")
        here, there = there, here
threading.Thread(target=change_places, daemon=True).start()
until, number = time.monotonic() + 10, 0
while time.monotonic() < until:
    number += 1
    if not add(f"more{number}"):
        time.sleep(0.02)
print(held >> 20, flush=True)
os._exit(0)
"""
# The kernel inside keeps a thousand names; one that it has forgotten goes without its file's notice.
NAMELESS = """
import os
held = []
for name in range(1500):
    open(f"/tmp/{name}", "w").close()
os.makedirs("many")
for name in range(1500):
    open(f"many/{name}", "w").close()
try:
    while len(held) < 60:
        file = open("x", "wb", buffering=0)
        os.link("x", "y")
        for name in range(1500):
            os.stat(f"many/{name}")
        os.unlink("y")
        os.unlink("x")
        held.append(file)
        for _ in range(4):
            file.write(bytes(1 << 18))
except OSError as error:
    print(len(held), error.errno, flush=True)
    os._exit(0)
"""
MUCH_DELETED = """
import os, time
held = open("held", "wb")
os.unlink("held")
for _ in range(200):
    held.write(os.urandom(1 << 20))
held.flush()
open("ready", "w").close()
time.sleep(1000)
"""
# A minute's worth of writes at the rate that it has, given to the kernel in one go.
SUBMITS = """
import ctypes, os, platform
io_setup, io_submit = (206, 209) if platform.machine() == "x86_64" else (0, 2)
system = ctypes.CDLL(None, use_errno=True).syscall
class Request(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_uint64), ("key", ctypes.c_uint32), ("flags", ctypes.c_uint32), ("code", ctypes.c_uint16),
        ("priority", ctypes.c_int16), ("fd", ctypes.c_uint32), ("buffer", ctypes.c_uint64), ("bytes", ctypes.c_uint64),
        ("offset", ctypes.c_int64), ("reserved", ctypes.c_uint64), ("more_flags", ctypes.c_uint32),
        ("event_fd", ctypes.c_uint32),
    ]
SIZE, COUNT = 1 << 16, 1000
block = ctypes.create_string_buffer(os.urandom(SIZE), SIZE)
file = open("written", "wb", buffering=0)
requests = [
    Request(code=1, fd=file.fileno(), buffer=ctypes.addressof(block), bytes=SIZE, offset=number * SIZE)
    for number in range(COUNT)
]
context = ctypes.c_uint64()
assert system(io_setup, COUNT, ctypes.byref(context)) == 0
pointers = (ctypes.c_void_p * COUNT)(*map(ctypes.addressof, requests))
done = 0
while done < COUNT:
    taken = system(io_submit, context, COUNT - done, ctypes.byref(pointers, done * 8))
    assert taken > 0, ctypes.get_errno()
    done += taken
print("submitted", flush=True)
"""
AT_THE_LIMIT = """
import errno, os, socket
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
client.settimeout(60)
unix = socket.socket(socket.AF_UNIX)
unix.bind("socket")
unix.listen()
other = socket.socket(socket.AF_UNIX)
other.connect("socket")
other.settimeout(60)
held = []
def refused(work):
    try:
        held.append(work())
    except OSError as error:
        return error.errno == errno.ENFILE
    return False
while not refused(lambda: open("/etc/passwd")):
    pass
print(refused(lambda: open("/proc/gvisor/checkpoint")))
for listening, waiting in ((server, client), (unix, other)):
    print(refused(listening.accept), refused(lambda: socket.socket(listening.family)))
    try:
        print("ended", waiting.recv(1) == b"")
    except ConnectionResetError:
        print("ended True")
"""


def test_a_disk_has_its_limit_from_the_first_moment(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=40)) as sandbox:
        sandbox.files.write("full", b"")
        filling = sandbox.processes.start(["python3", "-c", FILLS])
        until(lambda: sandbox.files.stat("full").size_bytes > 37 << 20)
        for _ in range(3):
            sandbox.suspend()
            assert sandbox.files.stat("full").size_bytes <= 40 << 20
        filling.kill()
        sandbox.run("truncate -s 20M full")
        for _ in range(3):
            kill_machines(module_home)
            until(lambda: sandbox.info().state == "crashed")
            assert sandbox.run("head -c 100M /dev/zero >>full").exit_code == 1
            assert 37 << 20 < sandbox.files.stat("full").size_bytes <= 40 << 20


@pytest.mark.parametrize("how", ["by_rename", "by_link"])
def test_what_gets_other_names_while_the_disk_is_measured_counts(module_home: Path, how: str) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20)) as sandbox:
        done = sandbox.exec(["python3", "-c", HIDES.replace("HOW", how)], timeout_s=240)
        assert 12 <= int(done.stdout) <= 20, done.stderr
        sandbox.run("rm -rf a b c y z more*").check()
        until(lambda: sandbox.run("head -c 10M /dev/zero >fits").exit_code == 0)


def test_a_file_whose_names_went_unnoticed_counts_while_it_is_open(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20)) as sandbox:
        held, number = map(int, sandbox.exec(["python3", "-c", NAMELESS], timeout_s=240).stdout.split())
        assert (held <= 20, number) == (True, 28)


def test_no_size_is_too_big_to_be_counted(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib=20)) as sandbox:
        for size in (2**63 - 1, 2**62, 2**52):
            assert sandbox.run(f"truncate -s {size} sparse").exit_code == 1
            until(lambda: sandbox.run("head -c 10M /dev/zero >half && rm half").exit_code == 0)
            filled = sandbox.run("head -c 100M /dev/zero >big; stat -c %s big; rm big")
            assert int(filled.stdout) <= 20 << 20


def test_more_data_of_deleted_files_than_memory_holds_fails_a_snapshot_and_ends_nothing(
    module_home: Path,
) -> None:
    with Sandbox.create(limits=Limits(memory_mib=256)) as sandbox:
        sandbox.processes.start(["python3", "-c", MUCH_DELETED])
        sandbox.run("until test -e ready; do sleep 0.05; done").check()
        with pytest.raises(EngineError, match="more than half as many bytes as there is memory"):
            sandbox.snapshot()
        ended = sandbox.run("pkill python3; while pgrep python3 >/dev/null; do sleep 0.05; done; echo still")
        assert ended.stdout == "still\n"
        sandbox.snapshot()


def test_what_fails_at_the_limit_of_open_files_ends_no_kernel_and_keeps_no_connection(
    module_home: Path,
) -> None:
    with Sandbox.create(limits=Limits(open_files=300)) as sandbox:
        done = sandbox.exec(["python3", "-c", AT_THE_LIMIT], user="user", timeout_s=240)
        expected = ["True", *["True True", "ended True"] * 2]
        assert done.stdout.splitlines() == expected, done.stderr
        assert sandbox.exec(["echo", "still"]).stdout == "still\n"


def test_writes_that_are_submitted_keep_to_their_rate_and_put_off_no_suspend(module_home: Path) -> None:
    with Sandbox.create(limits=Limits(disk_mib_s=1)) as sandbox:
        program = sandbox.processes.start(["python3", "-c", SUBMITS])
        while not (sandbox.files.exists("written") and sandbox.files.stat("written").size_bytes):
            time.sleep(0.05)
        sandbox.pause()
        sandbox.suspend()
        assert sandbox.files.stat("written").size_bytes < 1000 << 16
        sandbox.set_limits(Limits(disk_mib_s=1000))
        done = program.wait()
        assert (done.exit_code, done.stdout) == (0, "submitted\n"), done.stderr
        assert sandbox.files.stat("written").size_bytes == 1000 << 16
