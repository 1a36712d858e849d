"""Copies of a process with much memory: what they share, and that each has all of it."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from pathlib import Path

import pytest
from tests.e2e.counter import BOUND_S

from atoll import Sandbox, Snapshots
from atoll.host import Home, find_holder

pytestmark = pytest.mark.twice

PORT = 7300
BLOCK_BYTES = 64 << 20
HOLDER = f"""
import hashlib, os, socket
block = bytearray(os.urandom({BLOCK_BYTES}))
listener = socket.create_server(("", {PORT}))
while True:
    connection = listener.accept()[0]
    asked = connection.recv(1)
    if asked == b"c":
        block[0] = (block[0] + 1) % 256
        block[-1] = block[0]
    told = hashlib.sha256(block[:100] if asked == b"b" else block).hexdigest()
    connection.sendall(told.encode())
    connection.close()
"""


def holder(sandbox: Sandbox) -> None:
    """Start a process that holds random bytes, and wait until it answers."""
    sandbox.processes.start(["python3", "-c", HOLDER])
    end = time.monotonic() + BOUND_S
    while sandbox.run(f"ss -tln | grep -q LISTEN.*:{PORT}").exit_code:
        assert time.monotonic() < end


def ask(sandbox: Sandbox, what: bytes) -> str:
    """The digest of the beginning (b), of all (a), or of all after a change (c)."""
    with sandbox.ports.dial(PORT) as connection:
        connection.settimeout(BOUND_S)
        connection.sendall(what)
        read = b""
        while piece := connection.recv(100):
            read += piece
    assert len(read) == hashlib.sha256().digest_size * 2
    return read.decode()


def test_copies_share_the_memory_that_they_do_not_touch_and_each_has_all_of_it(module_home: Path) -> None:
    with contextlib.ExitStack() as stack:
        original = stack.enter_context(Sandbox.create())
        holder(original)
        beginning, whole = ask(original, b"b"), ask(original, b"a")
        forks = original.fork(8)
        for fork in forks:
            stack.enter_context(fork)
        assert [ask(fork, b"b") for fork in forks] == [beginning] * 8
        sizes = [fork.stats().memory_bytes for fork in forks]
        assert all(size is not None and size < BLOCK_BYTES for size in sizes), sizes
        changed = ask(forks[0], b"c")
        assert changed != whole
        assert [ask(fork, b"a") for fork in forks[1:4]] == [whole] * 3
        assert ask(forks[0], b"a") == changed
        assert ask(original, b"a") == whole


def used_bytes(home: Home) -> int:
    """What the memory of forks takes where it lies in memory, as the holder sees it."""
    holder = find_holder(home)
    assert holder is not None
    found = os.statvfs(f"/proc/{holder.pid}/root{home.run}/pages")
    return (found.f_blocks - found.f_bfree) * found.f_frsize


def test_memory_that_copies_share_lies_in_memory_as_long_as_one_lives(module_home: Path) -> None:
    with Sandbox.create() as original:
        holder(original)
        whole = ask(original, b"a")
        before = used_bytes(Home(module_home))
        first, second = original.fork(2)
        with first, second:
            end = time.monotonic() + BOUND_S
            assert used_bytes(Home(module_home)) - before >= BLOCK_BYTES
            first.kill()
            assert ask(second, b"a") == whole
            second.suspend()
            while used_bytes(Home(module_home)) > before:
                assert time.monotonic() < end
                time.sleep(0.1)
            assert ask(second, b"a") == whole


def test_a_copy_of_a_copy_that_never_touched_its_memory_has_all_of_it(module_home: Path) -> None:
    with Sandbox.create() as original:
        holder(original)
        whole = ask(original, b"a")
        first = original.snapshot()
        with Sandbox.create(first) as copy:
            second = copy.snapshot()
            (fork,) = copy.fork()
            with fork:
                fork.suspend()
                assert ask(fork, b"a") == whole
    with Sandbox.create(second) as last:
        assert ask(last, b"a") == whole
    for snapshot in (second, first):
        Snapshots.delete(snapshot.snapshot_id)
