"""The command ``atoll`` as a process of its own."""

import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

ATOLL = [sys.executable, "-m", "atoll.cli"]
# Ten times what a command takes on a busy machine.
LONG_S = 60


def atoll(*arguments: str, stdin: bytes | None = None) -> subprocess.CompletedProcess[bytes]:
    """Run a command line to its end, whatever its exit code."""
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    return subprocess.run([*ATOLL, *arguments], capture_output=True, timeout=LONG_S, check=False, **given)


def said(*arguments: str) -> str:
    """What a command line that must succeed prints."""
    done = atoll(*arguments)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode().rstrip("\n")


@contextmanager
def started(*arguments: str, **settings: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A command line that runs meanwhile; at the end it is killed if it still does."""
    with subprocess.Popen([*ATOLL, *arguments], **settings) as process:
        try:
            yield process
        finally:
            process.kill()


def until(descriptor: int, wanted: bytes) -> bytes:
    """Read until ``wanted`` has come, and return all that was read."""
    deadline = time.monotonic() + LONG_S
    seen = b""
    while wanted not in seen:
        ready, _, _ = select.select([descriptor], [], [], max(0.0, deadline - time.monotonic()))
        assert ready, f"{wanted!r} did not come, but {seen!r}"
        data = os.read(descriptor, 65536)
        assert data, f"the end came before {wanted!r}, after {seen!r}"
        seen += data
    return seen


def rest(terminal: int) -> None:
    """Read what a terminal still says, until nobody has its other end open."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        ready, _, _ = select.select([terminal], [], [], 1)
        try:
            if ready and not os.read(terminal, 65536):
                return
        except OSError:
            return
