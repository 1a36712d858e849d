"""Processes by pid and start time, which tells them from later ones with the same pid."""

from __future__ import annotations

import contextlib
import os
import select
import signal
from pathlib import Path


def boot_id() -> str:
    """Return an id that is new after each boot of the host."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def start_ticks(pid: int) -> int | None:
    """Return when the process started, in clock ticks since boot.

    None if it does not run (or is a zombie).
    """
    fields = _stat(pid)
    return None if fields is None or fields[0] in b"ZX" else int(fields[19])


def parent_of(pid: int) -> int | None:
    """Return the parent of a process; None if there is no such process."""
    fields = _stat(pid)
    return None if fields is None else int(fields[1])


def children_by_parent() -> dict[int, list[int]]:
    """Return the processes of this host at this moment, by their parents."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit() and (parent := parent_of(int(entry))) is not None:
            children.setdefault(parent, []).append(int(entry))
    return children


def _stat(pid: int, thread: str | None = None) -> list[bytes] | None:
    """Return the fields of a process's or thread's ``stat`` from its state on; None if there is no such one."""
    try:
        text = Path(f"/proc/{pid}/task/{thread}/stat" if thread else f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The second field is the program's name and may contain spaces and brackets.
    return text[text.rindex(b")") + 2 :].split()


def process_alive(pid: int, started_ticks: int) -> bool:
    """Whether exactly this process still runs."""
    return start_ticks(pid) == started_ticks


def open_process(pid: int, started_ticks: int) -> int | None:
    """Return a pidfd of exactly this process, which the caller closes; None if it has ended."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    if process_alive(pid, started_ticks):
        return fd
    os.close(fd)
    return None


def kill_process(pid: int, started_ticks: int, *, timeout_s: float = 10) -> bool:
    """Kill exactly this process, never another with the same pid, and wait for its end.

    Returns:
        True if it has ended, False if it still runs after ``timeout_s`` (it is stuck in the kernel).
    """
    fd = open_process(pid, started_ticks)
    if fd is None:
        return True
    try:
        with contextlib.suppress(ProcessLookupError):  # it just ended by itself
            signal.pidfd_send_signal(fd, signal.SIGKILL)
        return wait_pidfd(fd, timeout_s)
    finally:
        os.close(fd)


def stop_process(pid: int, started_ticks: int) -> bool:
    """Stop exactly this process until ``continue_process``, by a signal. Returns whether it still runs."""
    return _signal(pid, started_ticks, signal.SIGSTOP)


def stands_still(pid: int, *, held: bool = False) -> bool:
    """Whether every thread of a process is stopped, or has ended.

    Args:
        held: Whether a thread counts that the host's kernel holds and that no signal reaches. Such a thread
            may still be starting a process. If it stays so for long, it waits for a process that it has
            started (vfork).
    """
    still = b"TtZX" + (b"D" if held else b"")
    try:
        threads = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return True
    found = [_stat(pid, thread) for thread in threads]
    return all(fields is None or fields[0] in still for fields in found)


def continue_process(pid: int, started_ticks: int) -> bool:
    """Undo ``stop_process``. Returns whether the process still runs."""
    return _signal(pid, started_ticks, signal.SIGCONT)


def _signal(pid: int, started_ticks: int, number: signal.Signals) -> bool:
    fd = open_process(pid, started_ticks)
    if fd is None:
        return False
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:  # it just ended by itself
        return False
    finally:
        os.close(fd)
    return True


def wait_pidfd(fd: int, timeout_s: float) -> bool:
    """Whether the process of a pidfd has ended within ``timeout_s``."""
    waiter = select.poll()
    waiter.register(fd, select.POLLIN)
    return bool(waiter.poll(timeout_s * 1000))
