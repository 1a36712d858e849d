"""System calls that Python 3.11 lacks, by ctypes. Each raises OSError with the path concerned."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable

CLONE_NEWNS = 0x00020000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000

MS_RDONLY = 1
MS_NOSUID = 2
MS_NODEV = 4
MS_NOEXEC = 8
MS_REMOUNT = 32
MS_NOATIME = 1024
MS_NODIRATIME = 2048
MS_BIND = 4096
MS_REC = 16384
MS_SLAVE = 1 << 19
MS_SHARED = 1 << 20
MS_RELATIME = 1 << 21

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
_PR_CAPBSET_DROP = 24
_CAPABILITY_VERSION = 0x20080522

MNT_DETACH = 2
UMOUNT_NOFOLLOW = 8

_SOCKADDR_BYTES = 16
_FALLOC_KEEP_SIZE = 1
_FALLOC_PUNCH_HOLE = 2
_SYNC_FILE_RANGE_WRITE = 2
_OPENAT2 = 437
_RESOLVE_NO_XDEV = 1
_RESOLVE_NO_MAGICLINKS = 2
_RESOLVE_NO_SYMLINKS = 4
_RESOLVE_BENEATH = 8
_RESOLVE_IN_ROOT = 16
_TRIES = 16
_OPEN_TREE = 428
_OPEN_TREE_CLONE = 1
_MOVE_MOUNT = 429
_FSOPEN = 430
_FSCONFIG = 431
_FSMOUNT = 432
_FSCONFIG_SET_FLAG = 0
_FSCONFIG_SET_STRING = 1
_FSCONFIG_CMD_CREATE = 6
_MOVE_MOUNT_F_EMPTY_PATH = 4
_MOVE_MOUNT_T_EMPTY_PATH = 0x40
_AT_FDCWD = -100
_MOUNT_SETATTR = 442
_MOUNT_ATTR_RDONLY = 1
_MOUNT_ATTR_NOSUID = 2
_MOUNT_ATTR_NODEV = 4
_AT_EMPTY_PATH = 0x1000
_AT_RECURSIVE = 0x8000

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long


def _check(result: int, name: str | None = None) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), name)
    return result


def unshare(flags: int) -> None:
    """Give the calling thread new namespaces. For users and mounts the process must have one thread."""
    _check(_libc.unshare(flags))


def setns(fd: int, flags: int) -> None:
    """Enter the namespaces selected by ``flags`` of the namespace file or pidfd ``fd``."""
    _check(_libc.setns(fd, flags))


def disconnect(fd: int) -> None:
    """Reset a TCP connection at once, even if others have it open. Received data can still be read."""
    _check(_libc.connect(fd, bytes(_SOCKADDR_BYTES), _SOCKADDR_BYTES))  # to AF_UNSPEC, which is 0


def prctl(option: int, value: int) -> None:
    """prctl(2) with one value."""
    _check(
        _libc.prctl(option, ctypes.c_ulong(value), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0))
    )


def drop_capabilities(numbers: Iterable[int]) -> None:
    """Remove capabilities from the calling thread and everything it starts, permanently."""
    head = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Effective, permitted and inheritable sets: first the lower halves, then the upper.
    sets = (ctypes.c_uint32 * 6)()
    _check(_libc.capget(head, sets))
    for number in numbers:
        _check(_libc.prctl(_PR_CAPBSET_DROP, ctypes.c_ulong(number), 0, 0, 0))
        half, bit = divmod(number, 32)
        for kind in range(3):
            sets[3 * half + kind] &= ~(1 << bit)
    _check(_libc.capset(head, sets))


def mount(source: str, target: str, kind: str, flags: int, options: str) -> None:
    """mount(2)."""
    result = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        os.fsencode(kind),
        ctypes.c_ulong(flags),
        os.fsencode(options),
    )
    _check(result, target)


def lock_mounts(target: str) -> None:
    """Forbid writes and devices in a mount of this namespace and the mounts below it."""
    _set_mount(target, _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NODEV | _MOUNT_ATTR_NOSUID, 0, _AT_RECURSIVE)


def let_write(target: str) -> None:
    """Allow writes in one mount again."""
    _set_mount(target, 0, _MOUNT_ATTR_RDONLY, 0)


def _set_mount(target: str, more: int, less: int, flags: int) -> None:
    attributes = (ctypes.c_uint64 * 4)(more, less)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    _check(_libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, os.fsencode(target), flags, attributes, size), target)


def bind_read_only(source: str, below: int, path: str) -> None:
    """Make ``source`` appear, read-only, at ``path`` below the directory ``below``, through no symlink.

    It is read-only wherever it appears. A remount of a bind would apply only to that mount, not to its
    propagated copies.
    """
    how = _OpenHow(os.O_PATH | os.O_CLOEXEC, 0, _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH)
    name = os.fsencode(path)
    at = _check(_libc.syscall(_OPENAT2, below, name, ctypes.byref(how), ctypes.sizeof(how)), path)
    try:
        flags = _OPEN_TREE_CLONE | os.O_CLOEXEC
        tree = _check(_libc.syscall(_OPEN_TREE, _AT_FDCWD, os.fsencode(source), flags), source)
        try:
            more = _MOUNT_ATTR_RDONLY | _MOUNT_ATTR_NOSUID | _MOUNT_ATTR_NODEV
            attributes, size = (ctypes.c_uint64 * 4)(more, 0, 0, 0), 32
            _check(_libc.syscall(_MOUNT_SETATTR, tree, b"", _AT_EMPTY_PATH, attributes, size), source)
            empty = _MOVE_MOUNT_F_EMPTY_PATH | _MOVE_MOUNT_T_EMPTY_PATH
            _check(_libc.syscall(_MOVE_MOUNT, tree, b"", at, b"", empty), path)
        finally:
            os.close(tree)
    finally:
        os.close(at)


def umount(target: str, flags: int) -> None:
    """umount2(2)."""
    _check(_libc.umount2(os.fsencode(target), flags), target)


def syncfs(fd: int) -> None:
    """Write everything that the file system of ``fd`` holds in memory to its disk."""
    _check(_libc.syncfs(fd))


def begin_flush(fd: int) -> None:
    """Make the kernel begin to write the cached pages of a file. Waits only for room in the disk's queue.

    Nothing is durable after that, but ``fsync`` has less to do.
    """
    _check(_libc.sync_file_range(fd, ctypes.c_int64(0), ctypes.c_int64(0), _SYNC_FILE_RANGE_WRITE))


def take_room(fd: int, size: int) -> None:
    """Allocate the blocks for ``size`` bytes of a file without changing its size."""
    _check(_libc.fallocate(fd, _FALLOC_KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(size)))


def punch_hole(fd: int, start: int, length: int) -> None:
    """Free the disk blocks of a part of a file, which reads as zeros from now on."""
    mode = _FALLOC_PUNCH_HOLE | _FALLOC_KEEP_SIZE
    _check(_libc.fallocate(fd, mode, ctypes.c_int64(start), ctypes.c_int64(length)))


class _OpenHow(ctypes.Structure):
    _fields_ = [("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64)]


def open_directory_below(fd: int, path: str) -> int:
    """Open a directory below the directory ``fd`` for reading, through no symlink and into no other mount."""
    resolve = _RESOLVE_NO_XDEV | _RESOLVE_NO_SYMLINKS | _RESOLVE_BENEATH
    how = _OpenHow(os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    return _check(_libc.syscall(_OPENAT2, fd, name, ctypes.byref(how), ctypes.sizeof(how)), path)


def open_in_root(fd: int, path: str, flags: int) -> int:
    """Open a path with the directory ``fd`` as root.

    Symlinks and ``..`` do not leave it, nor does another mount.
    """
    resolve = _RESOLVE_NO_XDEV | _RESOLVE_NO_MAGICLINKS | _RESOLVE_IN_ROOT
    how = _OpenHow(flags | os.O_CLOEXEC, 0, resolve)
    name = os.fsencode(path)
    for tries_left in range(_TRIES, 0, -1):
        try:
            opened = _libc.syscall(_OPENAT2, fd, name, ctypes.byref(how), ctypes.sizeof(how))
            return _check(opened, path)
        except BlockingIOError:
            # Directories are being renamed meanwhile, so the kernel cannot be sure.
            if tries_left == 1:
                raise
    raise AssertionError("unreachable")


class FilesystemContext:
    """A file system being configured by fsopen(2), for options too long for mount(2). ``with`` closes it."""

    def __init__(self, kind: str) -> None:
        self._fd = _check(_libc.syscall(_FSOPEN, os.fsencode(kind), 1), kind)

    def __enter__(self) -> FilesystemContext:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def option(self, key: str, value: str | None = None) -> None:
        """Set one option; without a value it is a flag."""
        command = _FSCONFIG_SET_FLAG if value is None else _FSCONFIG_SET_STRING
        text = None if value is None else os.fsencode(value)
        _check(_libc.syscall(_FSCONFIG, self._fd, command, os.fsencode(key), text, 0), f"{key}={value}")

    def mount(self, target: str, attributes: int) -> None:
        """Create the file system and mount it; ``attributes`` are MOUNT_ATTR flags."""
        _check(_libc.syscall(_FSCONFIG, self._fd, _FSCONFIG_CMD_CREATE, None, None, 0), target)
        mounted = _check(_libc.syscall(_FSMOUNT, self._fd, 1, attributes), target)
        try:
            moved = _libc.syscall(
                _MOVE_MOUNT, mounted, b"", _AT_FDCWD, os.fsencode(target), _MOVE_MOUNT_F_EMPTY_PATH
            )
            _check(moved, target)
        finally:
            os.close(mounted)
