"""Runs inside a sandbox: what happens to files and what they hold. Each check is named by what it shows."""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import stat
import threading
import time
from collections.abc import Callable

from checks_names import DIRECTORIES, KINDS, refused, seen


def mode(kind: str, bits: int) -> Callable[[str], None]:
    def check(d: str) -> None:
        before = seen(f"{d}/{kind}")
        os.chmod(f"{d}/{kind}", bits)
        after = seen(f"{d}/{kind}")
        assert stat.S_IMODE(os.stat(f"{d}/{kind}").st_mode) == bits
        assert stat.S_IFMT(int(str(after[0]))) == stat.S_IFMT(int(str(before[0]))) and after[3] == before[3]

    return check


def owner(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        before = seen(f"{d}/{kind}")
        os.chown(f"{d}/{kind}", 1000, 1001, follow_symlinks=False)
        assert seen(f"{d}/{kind}")[1:] == (1000, 1001, before[3])
        os.chown(f"{d}/{kind}", -1, 5, follow_symlinks=False)
        assert seen(f"{d}/{kind}")[1:3] == (1000, 5)

    return check


def times(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        wanted = (1_234_567_890_123_456_789, 987_654_321_987_654_321)
        os.utime(f"{d}/{kind}", ns=wanted, follow_symlinks=False)
        info = os.lstat(f"{d}/{kind}")
        assert info.st_mtime_ns == wanted[1], info.st_mtime_ns
        assert abs(info.st_ctime - time.time()) < 3600

    return check


def unchanged(d: str) -> None:
    assert seen(f"{d}/f")[3] == b"hello"
    assert os.getxattr(f"{d}/f", "user.kept") == b"value"
    assert os.stat(f"{d}/g").st_mtime_ns == 2_000_000_009
    assert stat.S_IMODE(os.stat(f"{d}/setuid").st_mode) == 0o4755
    assert {os.stat(f"{d}/{name}").st_nlink for name in ("h1", "h2", "dir/h3")} == {3}
    assert stat.S_ISFIFO(os.lstat(f"{d}/fifo").st_mode)
    assert len(os.listdir(f"{d}/big")) == 64


def a_write_takes_setuid(d: str) -> None:
    os.chown(f"{d}/setuid", 1000, 1000)
    os.chmod(f"{d}/setuid", 0o4755)
    os.setegid(1000)
    os.seteuid(1000)
    with open(f"{d}/setuid", "ab") as file:
        file.write(b"x")
    assert stat.S_IMODE(os.stat(f"{d}/setuid").st_mode) == 0o755


def others_are_refused(d: str) -> None:
    os.chmod(f"{d}/f", 0o600)
    os.chmod(f"{d}/dir", 0o700)
    os.setegid(1000)
    os.seteuid(1000)
    for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
        with refused("EACCES"):
            os.open(f"{d}/f", flags)
    with refused("EACCES"):
        os.listdir(f"{d}/dir")
    with refused("EPERM"):
        os.chmod(f"{d}/g", 0o777)
    with refused("EPERM"):
        os.chown(f"{d}/owned", 0, 0)
    os.chmod(f"{d}/owned", 0o400)
    with refused("EACCES"):
        os.open(f"{d}/owned", os.O_WRONLY)


def truncate(size: int) -> Callable[[str], None]:
    def check(d: str) -> None:
        os.truncate(f"{d}/f", size)
        content = seen(f"{d}/f")[3]
        assert content == (b"hello" + bytes(size))[:size]
        with open(f"{d}/f", "r+b") as file:
            file.truncate(3)
            file.seek(0, os.SEEK_END)
            file.write(b"!")
        assert seen(f"{d}/f")[3] == (b"hello" + bytes(3))[: min(size, 3)].ljust(3, b"\0") + b"!"

    return check


def opened(flags: int, wanted: bytes) -> Callable[[str], None]:
    def check(d: str) -> None:
        fd = os.open(f"{d}/f", flags | os.O_CREAT, 0o600)
        try:
            os.write(fd, b"HI")
        finally:
            os.close(fd)
        assert seen(f"{d}/f")[3] == wanted

    return check


def open_directory(d: str) -> None:
    with refused("EISDIR"):
        os.open(f"{d}/dir", os.O_WRONLY)
    with refused("ENOTDIR"):
        os.open(f"{d}/f", os.O_DIRECTORY)
    with refused("EEXIST", "EISDIR"):
        os.open(f"{d}/dir", os.O_CREAT | os.O_EXCL | os.O_WRONLY)


def appends(d: str) -> None:
    one, two = (os.open(f"{d}/f", os.O_WRONLY | os.O_APPEND) for _ in range(2))
    for _ in range(3):
        os.write(one, b"1")
        os.write(two, b"2")
        os.lseek(one, 0, os.SEEK_SET)
    os.close(one)
    os.close(two)
    assert seen(f"{d}/f")[3] == b"hello121212"


def reader_sees_writer(d: str) -> None:
    """An open reader of what lies in a lower layer sees a write through another descriptor."""
    with open(f"{d}/f", "rb", buffering=0) as reader, open(f"{d}/f", "r+b", buffering=0) as writer:
        assert reader.read() == b"hello"
        writer.write(b"HELLO, and more")
        reader.seek(0)
        assert reader.read() == b"HELLO, and more"
        assert os.fstat(reader.fileno()).st_ino == os.stat(f"{d}/f").st_ino


def deleted_open(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        with open(f"{d}/{kind}", "r+b", buffering=0) as file:
            before = file.read()
            os.unlink(f"{d}/{kind}")
            file.write(b"more")
            file.seek(0)
            assert file.read() == before + b"more"
            if kind == "h1":
                assert os.fstat(file.fileno()).st_nlink == 2
                assert seen(f"{d}/h2")[3] == before + b"more"
            os.fchmod(file.fileno(), 0o640)
            with open(f"{d}/{kind}", "wb") as other:
                other.write(b"another")
            file.seek(0)
            assert file.read() == before + b"more"

    return check


def renamed_open(d: str) -> None:
    with open(f"{d}/dir/sub/y", "r+b", buffering=0) as file:
        os.rename(f"{d}/dir", f"{d}/away")
        os.rename(f"{d}/away/sub/y", f"{d}/y")
        file.write(b"written")
        assert seen(f"{d}/y")[3] == b"written"


def removed_cwd(d: str) -> None:
    os.chdir(f"{d}/edir")
    os.rmdir(f"{d}/edir")
    with refused("ENOENT"):
        os.open("new", os.O_CREAT | os.O_WRONLY)


def removed_cwd_is_empty(d: str) -> None:
    os.chdir(f"{d}/edir")
    os.rmdir(f"{d}/edir")
    assert os.listdir(".") == []


def no_links(d: str) -> None:
    with open(f"{d}/f", "rb") as file:
        os.unlink(f"{d}/f")
        assert os.fstat(file.fileno()).st_nlink == 0


def fallocated(d: str) -> None:
    fd = os.open(f"{d}/f", os.O_RDWR)
    os.posix_fallocate(fd, 0, 100_000)
    assert os.fstat(fd).st_size == 100_000
    assert os.pread(fd, 6, 0) == b"hello\0"
    os.close(fd)


def sparse(d: str) -> None:
    fd = os.open(f"{d}/sparse", os.O_RDWR)
    assert os.pread(fd, 3, 1 << 20) == b"end" and os.pread(fd, 8, 1000) == bytes(8)
    os.pwrite(fd, b"mid", 500_000)
    os.ftruncate(fd, 1 << 32)
    assert os.pread(fd, 3, 500_000) == b"mid" and os.pread(fd, 3, 1 << 20) == b"end"
    os.close(fd)


def blocks(d: str) -> None:
    assert os.stat(f"{d}/sparse").st_blocks * 512 < 1 << 20


def xattrs(kind: str) -> Callable[[str], None]:
    def check(d: str) -> None:
        path = f"{d}/{kind}"
        os.setxattr(path, "user.one", b"1")
        os.setxattr(path, "user.one", b"2", os.XATTR_REPLACE)
        with refused("EEXIST"):
            os.setxattr(path, "user.one", b"3", os.XATTR_CREATE)
        with refused("ENODATA"):
            os.setxattr(path, "user.none", b"3", os.XATTR_REPLACE)
        assert os.getxattr(path, "user.one") == b"2"
        assert "user.one" in os.listxattr(path)
        os.removexattr(path, "user.one")
        with refused("ENODATA"):
            os.getxattr(path, "user.one")
        assert not [name for name in os.listxattr(path) if "overlay" in name]

    return check


def in_another_process(work: Callable[[], None]) -> int:
    child = os.fork()
    if not child:
        status = 1
        with contextlib.suppress(BaseException):
            work()
            status = 0
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def locks(kind: int, take: Callable[[int, int], object]) -> Callable[[str], None]:
    def check(d: str) -> None:
        def other() -> None:
            with open(f"{d}/f", "r+b") as again:
                take(again.fileno(), kind | fcntl.LOCK_NB)

        with open(f"{d}/f", "r+b") as file:
            take(file.fileno(), fcntl.LOCK_EX)
            assert in_another_process(other) == 1
            os.rename(f"{d}/f", f"{d}/moved")
            os.rename(f"{d}/moved", f"{d}/f")
            assert in_another_process(other) == 1
            take(file.fileno(), fcntl.LOCK_UN)
            assert in_another_process(other) == 0

    return check


def mapped(d: str) -> None:
    os.truncate(f"{d}/g", 8192)
    with open(f"{d}/g", "r+b") as file, mmap.mmap(file.fileno(), 0) as memory:
        memory[4096:4100] = b"mmap"
        assert os.pread(file.fileno(), 4, 4096) == b"mmap"
        os.pwrite(file.fileno(), b"file", 4096)
        assert memory[4096:4100] == b"file"
        os.unlink(f"{d}/g")
        memory[0:3] = b"end"
        memory.flush()
        assert os.pread(file.fileno(), 3, 0) == b"end"


def mapped_private(d: str) -> None:
    with open(f"{d}/f", "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as memory:
        memory[0:1] = b"J"
        assert memory[:] == b"jello".replace(b"j", b"J")
    assert seen(f"{d}/f")[3] == b"hello"


def fifo(d: str) -> None:
    def writer() -> None:
        with open(f"{d}/fifo", "wb") as out:
            out.write(b"through")

    thread = threading.Thread(target=writer)
    thread.start()
    with open(f"{d}/fifo", "rb") as file:
        assert file.read() == b"through"
    thread.join()
    with refused("ENXIO"):
        os.open(f"{d}/fifo", os.O_WRONLY | os.O_NONBLOCK)


def stamps(d: str) -> None:
    directory, file = os.stat(f"{d}/dir"), os.stat(f"{d}/dir/x")
    time.sleep(0.02)
    with open(f"{d}/dir/x", "ab") as out:
        out.write(b"x")
    assert os.stat(f"{d}/dir/x").st_mtime_ns > file.st_mtime_ns
    assert os.stat(f"{d}/dir").st_mtime_ns == directory.st_mtime_ns
    os.unlink(f"{d}/dir/x")
    assert os.stat(f"{d}/dir").st_mtime_ns > directory.st_mtime_ns


def executes(d: str) -> None:
    with open(f"{d}/f", "wb") as out:
        out.write(b"#!/bin/sh\nexit 7\n")
    os.chmod(f"{d}/f", 0o755)
    assert os.waitstatus_to_exitcode(os.system(f"{d}/f")) == 7


PLAIN = [kind for kind in KINDS if kind not in ("link", "dangling")]
OBJECT_CHECKS: dict[str, Callable[[str], None]] = {
    "nothing-has-changed": unchanged,
    **{
        f"chmod-{kind}-{bits:o}": mode(kind, bits)
        for kind in PLAIN
        for bits in (0o000, 0o600, 0o755, 0o1777, 0o2750, 0o4711)
    },
    **{f"chown-{kind}": owner(kind) for kind in KINDS},
    **{f"utimens-{kind}": times(kind) for kind in KINDS},
    "a-write-takes-setuid-away": a_write_takes_setuid,
    "permissions-hold": others_are_refused,
    **{f"truncate-to-{size}": truncate(size) for size in (0, 1, 5, 4095, 4096, 4097, 1 << 20)},
    "open-to-write": opened(os.O_WRONLY, b"HIllo"),
    "open-to-append": opened(os.O_WRONLY | os.O_APPEND, b"helloHI"),
    "open-to-truncate": opened(os.O_WRONLY | os.O_TRUNC, b"HI"),
    "open-for-both": opened(os.O_RDWR, b"HIllo"),
    "open-synchronously": opened(os.O_WRONLY | os.O_SYNC, b"HIllo"),
    "open-directories": open_directory,
    "two-append-to-one-file": appends,
    "an-open-reader-sees-a-write": reader_sees_writer,
    **{f"deleted-{kind}-stays-open": deleted_open(kind) for kind in ("f", "empty", "h1", "sparse")},
    "a-renamed-file-stays-open": renamed_open,
    "a-removed-working-directory": removed_cwd,
    "a-removed-working-directory-is-empty": removed_cwd_is_empty,
    "a-deleted-open-file-has-no-links": no_links,
    "holes-take-no-blocks": blocks,
    "fallocate": fallocated,
    "holes": sparse,
    **{f"xattrs-of-{kind}": xattrs(kind) for kind in ("f", "h1", *DIRECTORIES)},
    "flock": locks(fcntl.LOCK_EX, fcntl.flock),
    "fcntl-locks": locks(fcntl.LOCK_EX, fcntl.lockf),
    "a-shared-mapping": mapped,
    "a-private-mapping": mapped_private,
    "a-fifo": fifo,
    "time-stamps": stamps,
    "a-written-file-executes": executes,
}
