"""Keeps idle processors of the host quick to wake, with the kernel's latency request (PM QoS).

A command in a sandbox causes dozens of wake-ups from one thread to another. If an idle processor sleeps, each
of them costs its wake-up time: 50 µs and more in a virtual machine, 100 µs in a deep state of a real one. See
``Documentation/power/pm_qos_interface.rst`` of Linux.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

DEVICE = Path("/dev/cpu_dma_latency")
_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
# In a virtual machine the only state besides polling gives the processor back, at any cost. Elsewhere the
# shallow states (C1, C1E) wake within this time, and the deep ones do not.
_VIRTUAL = ("haltpoll",)
_VIRTUAL_US = 0
_REAL_US = 10
# PM_QOS_CPU_LATENCY_DEFAULT_VALUE: any latency is allowed.
_ANY_US = 2_000_000_000


class CpuLatency:
    """A request to the kernel that idle processors stay quick to wake. It ends with the process that made it.

    Args:
        fd: The open device; this object closes it.
        wanted_us: The latency to request, in microseconds.
    """

    def __init__(self, fd: int, wanted_us: int) -> None:
        self._fd = fd
        self._wanted_us = wanted_us

    def request(self) -> None:
        """Activate the request; idle processors then use more power."""
        self._write(self._wanted_us)

    def withdraw(self) -> None:
        """Withdraw the request."""
        self._write(_ANY_US)

    def close(self) -> None:
        """Withdraw the request and close the device. Later requests do nothing."""
        # An operation may begin after the watch has ended, when another file may have this descriptor.
        fd, self._fd = self._fd, -1
        os.close(fd)

    def _write(self, latency_us: int) -> None:
        with contextlib.suppress(OSError):  # the request is optional, so a failure is ignored
            os.write(self._fd, struct.pack("=i", latency_us))


def open_cpu_latency(device: Path = DEVICE, driver: Path = _DRIVER) -> CpuLatency | None:
    """Return an inactive request; None if this process may make none, or if it would change nothing."""
    try:
        name = driver.read_text().strip()
        if name == "none":
            return None
        fd = os.open(device, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return None
    request = CpuLatency(fd, _VIRTUAL_US if name in _VIRTUAL else _REAL_US)
    request.withdraw()
    return request
