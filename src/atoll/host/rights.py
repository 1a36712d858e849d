"""Gives up the rights that this process does not need, for itself and everything it starts."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterable
from pathlib import Path

from atoll.errors import HostError
from atoll.host import syscalls

# Rights of root that keeping sandboxes never needs. By number, as in linux/capability.h.
NEEDLESS = {
    "linux_immutable": 9,
    "ipc_owner": 15,
    "sys_module": 16,
    "sys_rawio": 17,
    "sys_pacct": 20,
    "sys_boot": 22,
    "sys_time": 25,
    "sys_tty_config": 26,
    "lease": 28,
    "audit_control": 30,
    "mac_override": 32,
    "mac_admin": 33,
    "syslog": 34,
    "wake_alarm": 35,
    "block_suspend": 36,
    "audit_read": 37,
    "perfmon": 38,
    "bpf": 39,
}


def lower_rights() -> None:
    """Give up permanently the rights that a supervisor does not need.

    Afterwards no program that it starts gains rights by being setuid, and neither it nor they leave core
    files. No other process of the same user can read its memory, and it loses the rights of root that are in
    ``NEEDLESS``. Call it in a process with one thread, after it has entered its namespaces: rights belong to
    a thread, and entering a user namespace gives all of them.

    Raises:
        OSError: The kernel refuses it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        syscalls.drop_capabilities(number for number in NEEDLESS.values() if number <= last)


def give_up_rights() -> None:
    """Give up permanently all rights of this process beyond its user's own files and sockets.

    This is for a process that serves strangers and starts no program. As root it loses all of root's rights,
    and keeps an ordinary user's rights over root's files. Call it in a process with one thread.

    Raises:
        OSError: The kernel refuses it.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    syscalls.prctl(syscalls.PR_SET_DUMPABLE, 0)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    if os.geteuid() == 0:
        last = int(Path("/proc/sys/kernel/cap_last_cap").read_text())
        syscalls.drop_capabilities(range(last + 1))


def write_nowhere_but(directories: Iterable[Path]) -> None:
    """As root, permanently forbid writes outside ``directories``, and all devices.

    Root needs no rights to write its own files. Without this, a process that gave up all rights could still
    change programs, disks and the kernel's settings. Call it before ``give_up_rights``, in a process with one
    thread.

    Raises:
        HostError: The kernel refuses it.
    """
    if os.geteuid() != 0:
        return
    try:
        syscalls.unshare(syscalls.CLONE_NEWNS)
        # a later unmount on the host unmounts here, too
        syscalls.mount("", "/", "", syscalls.MS_REC | syscalls.MS_SLAVE, "")
        places = [os.path.realpath(directory) for directory in directories]
        for place in places:
            syscalls.mount(place, place, "", syscalls.MS_BIND | syscalls.MS_REC, "")
        syscalls.lock_mounts("/")
        for place in places:
            syscalls.let_write(place)
    except OSError as error:
        raise HostError(
            f"the kernel cannot stop this process from writing root's files: {error.strerror}",
            hint="use Linux 5.12 or newer with root's rights, or run `atoll serve` as an ordinary user",
        ) from error
