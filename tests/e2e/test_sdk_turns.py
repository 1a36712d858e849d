"""Sentry and guest take turns: programs must not notice, and none can keep its turn for ever."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import Sandbox

# Two threads that compute without the interpreter's lock, and without a system call for a tenth of a second each time,
# beside one that makes many of them.
BUSY_THREADS = """
import hashlib, os, threading, time
block, done = bytes(64 << 20), threading.Event()
def compute():
    while not done.is_set():
        hashlib.sha256(block)
threads = [threading.Thread(target=compute) for _ in range(2)]
for thread in threads:
    thread.start()
for _ in range(300):
    os.getppid()
    time.sleep(0.001)
done.set()
for thread in threads:
    thread.join()
print("all ran")
"""

# Has gVisor's own program in the process take no signals (its state is at gs:0x2c, and 2 means that it must not be
# disturbed), and never comes back: mov dword ptr gs:[0x2c], 2; jmp $.
DEAF = """
import ctypes, mmap
page = mmap.mmap(-1, 4096, prot=7)
page.write(bytes.fromhex("65c704252c00000002000000" "ebfe"))
print("deaf", flush=True)
ctypes.CFUNCTYPE(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

# 400 children of one process, eight at a time, which make system calls until a signal of their parent ends them.
SIGNALS = """
import os, signal
for _ in range(50):
    children = []
    for _ in range(8):
        child = os.fork()
        if not child:
            while True:
                os.getppid()
        children.append(child)
    for child in children:
        os.kill(child, signal.SIGTERM)
    for child in children:
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGTERM
print("all ended")
"""


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_threads_that_compute_let_others_of_their_process_run(sandbox: Sandbox) -> None:
    for _ in range(3):
        assert sandbox.exec(["python3", "-c", BUSY_THREADS], timeout_s=120).check().stdout == "all ran\n"


def test_programs_that_only_make_system_calls_end_by_signals(sandbox: Sandbox) -> None:
    assert sandbox.exec(["python3", "-c", SIGNALS], timeout_s=120).check().stdout == "all ended\n"


def test_a_program_that_takes_no_signals_ends_all_the_same(sandbox: Sandbox) -> None:
    with sandbox.processes.start(["python3", "-c", DEAF], stream=True) as deaf:
        assert next(iter(deaf)).text == "deaf\n"
        deaf.kill()
        assert sandbox.run("echo others answer").stdout == "others answer\n"
        # The sentry gives up after 30 s.
        until(lambda: deaf.pid not in [row.pid for row in sandbox.processes.list()])
    assert sandbox.run("echo still").stdout == "still\n"
