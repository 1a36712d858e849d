"""Mounts in the mount namespace of this process (the holder's, once joined)."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
from collections.abc import Sequence
from pathlib import Path

from atoll.errors import HostError
from atoll.host import syscalls

# The kernel accepts one page of options, and the other options need some of it.
_LONGEST_LOWERS_BYTES = 3400
_PAGE_BYTES = 4096
_BUSY_S = 5.0
_LESSER = "userxattr"
_COMPLETE = ("redirect_dir=on", "index=on", "metacopy=off")
_OCTAL = re.compile(rb"\\([0-7]{3})")


class Mounts:
    """atoll's uses of mount(2). Stateless. All methods block, but only ``unmount`` can take long."""

    @staticmethod
    def overlay(lowers: Sequence[Path], upper: Path, work: Path, at: Path, *, complete: bool) -> None:
        """Mount an overlay: ``lowers`` (the first one on top) below the writable ``upper``.

        Args:
            complete: True as root of the host: renamed directories and hard links of lower layers behave as
                on a plain disk. Give False in a user namespace, where the kernel has only a limited overlay.

        Raises:
            HostError: The kernel refuses it; the message has its reason.
        """
        flags = (_LESSER,) if not complete else _COMPLETE
        lower = ":".join(_escaped(path) for path in lowers)
        try:
            if len(os.fsencode(lower)) > _LONGEST_LOWERS_BYTES - 2 * len(os.fsencode(upper)):
                _overlay_of_many(lowers, upper, work, at, flags)
                return
            options = f"lowerdir={lower},upperdir={_escaped(upper)},workdir={_escaped(work)}"
            wanted = syscalls.MS_NOSUID | syscalls.MS_NODEV
            syscalls.mount("overlay", str(at), "overlay", wanted, ",".join((options, *flags)))
        except OSError as error:
            raise HostError(
                f"the kernel refuses an overlay of {len(lowers)} layers, on top {upper}: {error.strerror}",
                hint="the home must lie on a local file system (ext4, xfs, btrfs); see `atoll doctor`",
            ) from error

    @staticmethod
    def overlay_read_only(lowers: Sequence[Path], at: Path, *, complete: bool) -> None:
        """Mount an overlay of two or more ``lowers`` (the first one on top) that nobody can write to.

        Args:
            complete: See ``overlay``.

        Raises:
            HostError: The kernel refuses it; the message has its reason.
        """
        options = [f"lowerdir={':'.join(_escaped(path) for path in lowers)}"]
        wanted = syscalls.MS_RDONLY | syscalls.MS_NOSUID | syscalls.MS_NODEV
        try:
            syscalls.mount(
                "overlay", str(at), "overlay", wanted, ",".join(options if complete else [*options, _LESSER])
            )
        except OSError as error:
            raise HostError(
                f"the kernel refuses a read-only overlay of {lowers[0]}: {error.strerror}",
                hint="the home's images must lie on a file system that can be below an overlay",
            ) from error

    @staticmethod
    def bind(source: Path, at: Path, *, read_only: bool) -> None:
        """Make ``source`` (a directory or a file) appear at ``at`` too.

        Raises:
            OSError: The kernel refuses it; then nothing is mounted.
        """
        syscalls.mount(str(source), str(at), "", syscalls.MS_BIND, "")
        if not read_only:
            return
        try:
            flags = syscalls.MS_REMOUNT | syscalls.MS_BIND | syscalls.MS_RDONLY | _kept_flags(at)
            syscalls.mount("", str(at), "", flags, "")
        except OSError:
            syscalls.umount(str(at), syscalls.MNT_DETACH | syscalls.UMOUNT_NOFOLLOW)
            raise

    @staticmethod
    def bind_below(source: Path, top: Path, path: str) -> None:
        """Make ``source`` appear at ``path`` below ``top`` too, read-only.

        Its propagated copies are read-only, too. The content below ``top`` is untrusted, so no
        symbolic link in it is followed.

        Raises:
            OSError: The kernel refuses it; then nothing is mounted.
        """
        fd = os.open(top, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            syscalls.bind_read_only(str(source), fd, path)
        finally:
            os.close(fd)

    @staticmethod
    def unmount(at: Path) -> None:
        """Unmount the topmost mount at ``at``. If nothing is mounted there, that is not an error.

        Waits up to 5 s while it is in use, then detaches it, so that it ends with its last user.

        Raises:
            OSError: The kernel refuses it.
        """
        until_s = time.monotonic() + _BUSY_S
        while True:
            try:
                syscalls.umount(str(at), syscalls.UMOUNT_NOFOLLOW)
                return
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOENT):
                    return
                if error.errno != errno.EBUSY:
                    raise
            if time.monotonic() > until_s:
                syscalls.umount(str(at), syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)
                return
            time.sleep(0.02)

    @staticmethod
    def share(at: Path) -> None:
        """Make a place in memory whose mounts appear wherever it is mounted too.

        Does nothing if ``at`` is one.

        Raises:
            OSError: The kernel refuses it.
        """
        if not is_mounted(at):
            at.mkdir(mode=0o700, parents=True, exist_ok=True)
            wanted = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
            syscalls.mount("atoll", str(at), "tmpfs", wanted, "mode=0700")
        syscalls.mount("none", str(at), "", syscalls.MS_SHARED, "")

    @staticmethod
    def detach(at: Path) -> None:
        """Unmount everything that is mounted at ``at`` without waiting for its users.

        Raises:
            OSError: The kernel refuses it.
        """
        while True:
            try:
                syscalls.umount(str(at), syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)
            except OSError as error:
                if error.errno in (errno.EINVAL, errno.ENOENT):
                    return
                raise

    @staticmethod
    def clear(place: Path) -> None:
        """Unmount everything that is mounted at ``place``, and remove the empty directories made for it.

        Raises:
            OSError: The kernel refuses it.
        """
        Mounts.detach(place)
        remove_empty_place(place)

    @staticmethod
    def leave(at: Path) -> int:
        """Unmount the topmost mount at ``at``.

        The rest of the work happens when the returned descriptor is closed.

        Raises:
            OSError: The kernel refuses it; then it is still mounted.
        """
        fd = os.open(at, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            syscalls.umount(str(at), syscalls.UMOUNT_NOFOLLOW | syscalls.MNT_DETACH)
        except BaseException:
            os.close(fd)
            raise
        return fd


def is_mounted(path: Path) -> bool:
    """Whether a mount begins at ``path``. This takes microseconds, however many mounts there are."""
    try:
        return os.lstat(path).st_dev != os.lstat(path.parent).st_dev
    except FileNotFoundError:
        return False


def remove_empty_place(place: Path) -> None:
    """Remove a former mount point and the directories in it.

    A directory that is not empty, or still a mount, stays.
    """
    if is_mounted(place):
        return
    with contextlib.suppress(OSError):
        for below in place.iterdir():
            below.rmdir()
        place.rmdir()


def mounts_below(path: Path) -> list[Path]:
    """Return the mount points at and below ``path``, in an order in which they can be unmounted."""
    top = os.fsencode(os.path.realpath(path))
    inside = top.rstrip(b"/") + b"/"
    with open("/proc/thread-self/mountinfo", "rb") as table:
        points = [_OCTAL.sub(_octal, line.split(b" ")[4]) for line in table]
    found = [point for point in points if point == top or point.startswith(inside)]
    return [Path(os.fsdecode(point)) for point in reversed(found)]


def _octal(match: re.Match[bytes]) -> bytes:
    return bytes([int(match[1], 8)])


def _escaped(path: Path) -> str:
    return re.sub(r"([\\:,])", r"\\\1", str(path))


def _kept_flags(at: Path) -> int:
    # In a user namespace the kernel refuses a remount that drops a flag that the host had set.
    found = os.statvfs(at).f_flag
    same = syscalls.MS_NOSUID | syscalls.MS_NODEV | syscalls.MS_NOEXEC
    same |= syscalls.MS_NOATIME | syscalls.MS_NODIRATIME
    relative = syscalls.MS_RELATIME if found & 4096 else 0
    return (found & same) | relative


def _overlay_of_many(lowers: Sequence[Path], upper: Path, work: Path, at: Path, flags: Sequence[str]) -> None:
    try:
        _overlay_one_by_one(lowers, upper, work, at, flags)
    except OSError as error:
        # Kernels before 6.5 do not know the option.
        if error.errno not in (errno.EINVAL, errno.ENOSYS):
            raise
        _overlay_by_descriptors(lowers, upper, work, at, flags)


def _overlay_by_descriptors(
    lowers: Sequence[Path], upper: Path, work: Path, at: Path, flags: Sequence[str]
) -> None:
    """Name each layer by a descriptor, which gives the shortest possible name."""
    with contextlib.ExitStack() as stack:
        names = []
        for lower in lowers:
            fd = os.open(lower, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, fd)
            names.append(f"/proc/self/fd/{fd}")
        options = f"lowerdir={':'.join(names)},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        text = ",".join((options, *flags))
        if len(os.fsencode(text)) >= _PAGE_BYTES:
            raise OSError(errno.E2BIG, f"{len(lowers)} layers are too many for this kernel", str(at))
        syscalls.mount("overlay", str(at), "overlay", syscalls.MS_NOSUID | syscalls.MS_NODEV, text)


def _overlay_one_by_one(
    lowers: Sequence[Path], upper: Path, work: Path, at: Path, flags: Sequence[str]
) -> None:
    with syscalls.FilesystemContext("overlay") as context:
        for lower in lowers:
            context.option("lowerdir+", str(lower))
        context.option("upperdir", str(upper))
        context.option("workdir", str(work))
        for flag in flags:
            key, _, value = flag.partition("=")
            context.option(key, value or None)
        context.mount(str(at), syscalls.MS_NOSUID | syscalls.MS_NODEV)
