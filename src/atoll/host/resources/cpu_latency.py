"""How fast an idle processor of the host wakes: the kernel's latency request for processors (PM QoS).

A command in a sandbox is dozens of wake-ups from one thread to another. Where an idle processor has gone to sleep, each
of them costs what its waking costs: 50 µs and more in a virtual machine, 100 in a deep state of a real one. See
``Documentation/power/pm_qos_interface.rst`` of Linux.
"""

from __future__ import annotations

import contextlib
import os
import struct
from pathlib import Path

DEVICE = Path("/dev/cpu_dma_latency")
_DRIVER = Path("/sys/devices/system/cpu/cpuidle/current_driver")
# In a virtual machine the only state beside polling gives the processor back, whatever that costs. Elsewhere the
# shallow states (C1, C1E) wake within this, and the deep ones do not.
_VIRTUAL = ("haltpoll",)
_VIRTUAL_US = 0
_REAL_US = 10
# PM_QOS_CPU_LATENCY_DEFAULT_VALUE: any latency will do.
_ANY_US = 2_000_000_000


class CpuLatency:
    """A request to the kernel that idle processors stay quick to wake. It ends with the process that made it.

    Args:
        fd: The open device; this object closes it.
        wanted_us: The latency to ask for, in microseconds.
    """

    def __init__(self, fd: int, wanted_us: int) -> None:
        self._fd = fd
        self._wanted_us = wanted_us

    def request(self) -> None:
        """Ask for it from now on; idle processors then use more power."""
        self._write(self._wanted_us)

    def withdraw(self) -> None:
        """Ask for nothing any more."""
        self._write(_ANY_US)

    def close(self) -> None:
        """Withdraw it and close the device. What is asked for later is not asked for."""
        # An operation may begin after the watch has ended, and then the number is another file's.
        fd, self._fd = self._fd, -1
        os.close(fd)

    def _write(self, latency_us: int) -> None:
        with contextlib.suppress(OSError):  # what is asked for here is a favour
            os.write(self._fd, struct.pack("=i", latency_us))


def open_cpu_latency(device: Path = DEVICE, driver: Path = _DRIVER) -> CpuLatency | None:
    """A request that asks for nothing yet; None where this process may make none, or where it would change nothing."""
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
