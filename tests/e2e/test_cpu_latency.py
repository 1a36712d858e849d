"""Idle processors of the host are kept quick to wake while somebody waits, and no longer."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import until

from atoll import Sandbox, Supervisor
from atoll.host.resources.cpu_latency import DEVICE, open_cpu_latency

QUICK_US = 10


class Latency:
    """The least that the kernel has kept to, in microseconds, since the test began to look."""

    def __init__(self) -> None:
        self.least_us = now_us()


def now_us() -> int:
    """What the kernel keeps to now."""
    with DEVICE.open("rb", buffering=0) as device:
        return int(struct.unpack("=i", device.read(4))[0])


@contextlib.contextmanager
def looking() -> Iterator[Latency]:
    latency, ended = Latency(), threading.Event()

    def look() -> None:
        while not ended.wait(0.005):
            latency.least_us = min(latency.least_us, now_us())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield latency
    finally:
        ended.set()
        thread.join()


@pytest.mark.alone
def test_the_request_is_made_while_somebody_waits_or_computes_and_ends_with_the_supervisor(
    module_home: Path,
) -> None:
    request = open_cpu_latency()
    if request is None:  # an ordinary user may ask for nothing, and is told
        told = [finding.level for finding in Supervisor.doctor().findings if finding.name == "wake-ups"]
        assert told == (["note"] if DEVICE.exists() and not os.access(DEVICE, os.W_OK) else [])
        return
    request.close()
    with looking() as latency, Sandbox.create() as sandbox:
        assert latency.least_us <= QUICK_US
        until(lambda: now_us() > QUICK_US)
        computing = sandbox.processes.start(
            ["sh", "-c", "for i in $(seq $(nproc)); do (while :; do :; done) & done; wait"]
        )
        until(lambda: now_us() <= QUICK_US)
        computing.kill()
        sandbox.kill()
        until(lambda: now_us() > QUICK_US)
        Sandbox.create().close()
        hello = Supervisor.hello()
        assert hello is not None
        os.kill(hello.pid, signal.SIGKILL)
        until(lambda: now_us() > QUICK_US)
