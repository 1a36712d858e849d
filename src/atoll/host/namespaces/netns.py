"""Network namespaces that are pinned to a file and entered by single threads."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from atoll.host import syscalls

_SIOCGIFFLAGS = 0x8913
_SIOCSIFFLAGS = 0x8914
_IFF_UP = 1

_T = TypeVar("_T")
_thread = threading.local()


def new_netns(pin: Path) -> None:
    """Make a network namespace with its loopback up. It lives until ``unpin``.

    Args:
        pin: A file that does not exist yet; it becomes a mount point.

    Raises:
        OSError: It cannot be made; then nothing is left.
    """
    os.close(os.open(pin, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))

    def make() -> None:
        syscalls.unshare(syscalls.CLONE_NEWNET)
        _bring_loopback_up()
        syscalls.mount("/proc/thread-self/ns/net", str(pin), "", syscalls.MS_BIND, "")

    try:
        _in_fresh_thread(make)
    except BaseException:
        unpin(pin)
        raise


def in_netns(pin: Path, function: Callable[[], _T]) -> _T:
    """Call ``function`` in a new thread inside the namespace. Its result or exception is passed on.

    Sockets made in it belong to that namespace for good and can be used anywhere.

    Raises:
        OSError: There is no such namespace.
    """

    def enter() -> _T:
        fd = os.open(pin, os.O_RDONLY | os.O_CLOEXEC)
        try:
            syscalls.setns(fd, syscalls.CLONE_NEWNET)
        finally:
            os.close(fd)
        return function()

    return _in_fresh_thread(enter)


def in_spare_thread(function: Callable[[], _T]) -> _T:
    """Call ``function`` in a new thread, so that ``new_netns`` and ``in_netns`` in it need no further thread.

    Nothing else runs in the thread, so the thread may end up in any namespace.
    """

    def call() -> _T:
        _thread.is_spare = True
        return function()

    return _in_fresh_thread(call)


def unpin(pin: Path) -> None:
    """Release the namespace: it ends with its last process and socket. Idempotent."""
    # EINVAL: a plain file, because pinning failed or the holder died.
    with contextlib.suppress(OSError):
        syscalls.umount(str(pin), syscalls.MNT_DETACH | syscalls.UMOUNT_NOFOLLOW)
    pin.unlink(missing_ok=True)


def _bring_loopback_up() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh22x", b"lo", 0)
        _, flags = struct.unpack("16sh22x", fcntl.ioctl(any_socket, _SIOCGIFFLAGS, request))
        fcntl.ioctl(any_socket, _SIOCSIFFLAGS, struct.pack("16sh22x", b"lo", flags | _IFF_UP))


def _in_fresh_thread(function: Callable[[], _T]) -> _T:
    # A thread that has changed its namespace must not run anything else, so it is used only once.
    if getattr(_thread, "is_spare", False):
        return function()
    results: list[_T] = []
    failures: list[BaseException] = []

    def call() -> None:
        try:
            results.append(function())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call, name="netns", daemon=True)
    thread.start()
    thread.join()
    if failures:
        raise failures[0]
    return results[0]
