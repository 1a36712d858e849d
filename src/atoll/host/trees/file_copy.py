"""Copies single files exactly, between two directories given by their descriptors."""

from __future__ import annotations

import errno
import fcntl
import os
import stat

_FICLONE = 0x40049409
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_SMALL_BYTES = 64 << 10
_CHUNK_BYTES = 64 << 20
# Labels that the host's own security modules set by place, also for a copy.
_NOT_COPIED = ("security.selinux", "security.SMACK64", "security.ima", "security.evm")
_NO_CLONE = (errno.EOPNOTSUPP, errno.ENOTTY, errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EPERM)


class FileCopy:
    """Copies regular files, and remembers methods that this file system does not support."""

    def __init__(self) -> None:
        self._clones = True
        self._in_kernel = True

    def copy(self, old: int, new: int, name: str) -> None:
        """Copy the regular file ``name`` from the directory ``old`` into ``new``, which must not have it yet.

        Raises:
            OSError: It failed; a part of the file may exist.
        """
        source = os.open(name, _READ, dir_fd=old)
        try:
            status = os.fstat(source)
            if not stat.S_ISREG(status.st_mode):
                raise FileNotFoundError(errno.ENOENT, "it was replaced meanwhile", name)
            target = os.open(name, _CREATE, 0o600, dir_fd=new)
            try:
                self._copy_content(source, target, status)
                copy_attributes(source, target, status)
            finally:
                os.close(target)
        finally:
            os.close(source)

    def _copy_content(self, source: int, target: int, status: os.stat_result) -> None:
        if not status.st_size or self._cloned(source, target):
            return
        if status.st_size <= _SMALL_BYTES and status.st_blocks * 512 >= status.st_size:
            rest = memoryview(os.read(source, _SMALL_BYTES))
            while rest:
                rest = rest[os.write(target, rest) :]
            return
        at = 0
        while at < status.st_size:
            try:
                at = os.lseek(source, at, os.SEEK_DATA)
            except OSError as error:
                if error.errno != errno.ENXIO:
                    raise
                break  # only a hole is left
            end = os.lseek(source, at, os.SEEK_HOLE)
            at = self._copy_range(source, target, at, end)
        os.ftruncate(target, max(at, status.st_size))

    def _copy_range(self, source: int, target: int, at: int, end: int) -> int:
        while at < end:
            count = self._copy_some(source, target, at, min(end - at, _CHUNK_BYTES))
            if not count:
                break  # the file became shorter
            at += count
        return end

    def _copy_some(self, source: int, target: int, at: int, count: int) -> int:
        if self._in_kernel:
            try:
                return os.copy_file_range(source, target, count, at, at)
            except OSError as error:
                if error.errno not in _NO_CLONE:
                    raise
                self._in_kernel = False
        data = os.pread(source, min(count, 1 << 20), at)
        return os.pwrite(target, data, at)

    def _cloned(self, source: int, target: int) -> bool:
        if self._clones:
            try:
                fcntl.ioctl(target, _FICLONE, source)
                return True
            except OSError as error:
                if error.errno not in _NO_CLONE:
                    raise
                self._clones = False
        return False


def copy_node(old: int, new: int, name: str, status: os.stat_result) -> None:
    """Copy a symlink, fifo, socket or device with this status."""
    if stat.S_ISLNK(status.st_mode):
        os.symlink(os.readlink(name, dir_fd=old), name, dir_fd=new)
    else:
        os.mknod(name, stat.S_IFMT(status.st_mode) | 0o600, status.st_rdev, dir_fd=new)
    os.chown(name, status.st_uid, status.st_gid, dir_fd=new, follow_symlinks=False)
    place = f"/proc/self/fd/{new}/{name}"
    if not stat.S_ISLNK(status.st_mode):
        os.chmod(place, stat.S_IMODE(status.st_mode))
    origin = f"/proc/self/fd/{old}/{name}"
    for key in _attributes(os.listxattr(origin, follow_symlinks=False)):
        value = os.getxattr(origin, key, follow_symlinks=False)
        os.setxattr(place, key, value, follow_symlinks=False)
    times = (status.st_atime_ns, status.st_mtime_ns)
    os.utime(name, ns=times, dir_fd=new, follow_symlinks=False)


def copy_attributes(source: int, target: int, status: os.stat_result) -> None:
    """Give the open file ``target`` the owner, mode, extended attributes and times of ``source``."""
    os.fchown(target, status.st_uid, status.st_gid)
    # After the owner, because changing it removes the setuid bit.
    os.fchmod(target, stat.S_IMODE(status.st_mode))
    wanted = _attributes(os.listxattr(source))
    for key in _attributes(os.listxattr(target)):
        if key not in wanted:
            os.removexattr(target, key)
    for key in wanted:
        os.setxattr(target, key, os.getxattr(source, key))
    os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))


def _attributes(names: list[str]) -> list[str]:
    return [name for name in names if name not in _NOT_COPIED]


def reflinks(directory: int) -> bool:
    """Whether files of this directory can share their contents. It is tried with two unnamed files."""
    kind = os.O_RDWR | os.O_TMPFILE | os.O_CLOEXEC
    try:
        source = os.open(".", kind, 0o600, dir_fd=directory)
    except OSError:
        return False
    try:
        os.write(source, b"x" * 4096)
        target = os.open(".", kind, 0o600, dir_fd=directory)
        try:
            return FileCopy()._cloned(source, target)
        finally:
            os.close(target)
    finally:
        os.close(source)
