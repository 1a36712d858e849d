"""File and mount calls at random. It runs inside a sandbox: ``file_calls.py SEED SECONDS [--same-users]``.

What the calls answer does not matter. The kernel that answers them does: whoever started this looks whether it lives.
"""

import ctypes
import mmap
import os
import random
import select
import signal
import socket
import stat
import sys
import time

WORKERS = 3
NEW_MOUNTS, NEW_USERS = 0x20000, 0x10000000  # CLONE_NEWNS, CLONE_NEWUSER
PRIVATE, BIND, MOVE, REMOUNT, READ_ONLY, RECURSIVE = 1 << 18, 4096, 8192, 32, 1, 16384
MOUNT_FLAGS = (
    0,
    0,
    BIND,
    BIND,
    BIND | RECURSIVE,
    MOVE,
    REMOUNT | READ_ONLY,
    REMOUNT,
    PRIVATE,
    1 << 20,
    1 << 19,
)
OPEN_FLAGS = (
    os.O_CREAT,
    os.O_EXCL,
    os.O_TRUNC,
    os.O_APPEND,
    os.O_DIRECTORY,
    os.O_PATH,
    os.O_NOFOLLOW,
    os.O_TMPFILE,
)
NAMES = "abcd"
DEPTHS = (0,) + (1,) * 20 + (2,) * 12 + (3,) * 2
ATTRIBUTES = (
    "user.a",
    "user.overlay.opaque",
    "trusted.overlay.opaque",
    "user.overlay.redirect",
    "security.capability",
)
PROC = (
    "mountinfo",
    "mounts",
    "maps",
    "smaps",
    "status",
    "fdinfo",
    "ns",
    "task",
    "cwd",
    "root",
    "attr/current",
    "mem",
)

libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *arguments: object) -> int:
    encoded = [one.encode() if isinstance(one, str) else one for one in arguments]
    result: int = getattr(libc, name)(*encoded)
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


class Worker:
    """Calls of one process, on files that all of them share."""

    def __init__(self, seed: int, roots: list[str]) -> None:
        self.random = random.Random(seed)
        self.roots = roots
        self.files: list[int] = []
        self.watchers = [call("inotify_init1", os.O_NONBLOCK) for _ in range(2)]
        self.calls = [getattr(self, name) for name in dir(self) if name.startswith("do_")]
        self.calls += [self.do_mkdir, self.do_create, self.do_rename, self.do_move_beside, self.do_unlink] * 4

    def run(self, end_s: float) -> int:
        count = 0
        while time.monotonic() < end_s:
            count += 1
            try:
                if count % 200 == 1:
                    self.renew()
                self.random.choice(self.calls)()
            except (OSError, ValueError):
                pass
            while len(self.files) > 24:
                self.close()
        return count

    def renew(self) -> None:
        """Make directories that were removed, or made useless, again."""
        root = self.random.choice(self.roots)
        for path in (root, *(f"{root}/{name}" for name in NAMES)):
            if path != root:
                libc.umount2(path.encode(), 2)  # MNT_DETACH; most often nothing is mounted
            os.makedirs(path, exist_ok=True)
            os.chmod(path, 0o755)

    def close(self) -> None:
        os.close(self.files.pop(self.random.randrange(len(self.files))))

    def path(self) -> str:
        root = self.random.choice(self.roots)
        names = [self.random.choice(NAMES) for _ in range(self.random.choice(DEPTHS))]
        if self.random.random() < 0.03:
            names.append(self.random.choice(("..", ".", "n" * 255, "n" * 256)))
        return "/".join([root, *names])

    def file(self) -> int:
        if not self.files or self.random.random() < 0.3:
            self.do_open()
        return self.random.choice(self.files)

    def do_open(self) -> None:
        flags = self.random.choice((os.O_RDONLY, os.O_WRONLY, os.O_RDWR)) | os.O_NONBLOCK
        for flag in OPEN_FLAGS:
            if self.random.random() < 0.2:
                flags |= flag
        self.files.append(os.open(self.path(), flags, self.random.choice((0o644, 0o6755, 0o000))))

    def do_create(self) -> None:
        self.files.append(os.open(self.path(), os.O_CREAT | os.O_RDWR, 0o644))

    def do_close(self) -> None:
        if self.files:
            self.close()

    def do_mkdir(self) -> None:
        os.mkdir(self.path(), self.random.choice((0o755, 0o755, 0o2777, 0o1777)))

    def do_rmdir(self) -> None:
        os.rmdir(self.path())

    def do_unlink(self) -> None:
        os.unlink(self.path())

    def do_rename(self) -> None:
        flags = self.random.choice((0, 0, 0, 1, 2, 2, 4, 5))
        call("renameat2", -100, self.path(), -100, self.path(), flags)

    def do_move_beside(self) -> None:
        parent = os.path.dirname(self.path())
        call(
            "renameat2",
            -100,
            f"{parent}/{self.random.choice(NAMES)}",
            -100,
            f"{parent}/{self.random.choice(NAMES)}",
            0,
        )

    def do_link(self) -> None:
        os.link(self.path(), self.path())

    def do_link_open_file(self) -> None:
        os.link(f"/proc/self/fd/{self.file()}", self.path(), follow_symlinks=True)

    def do_symlink(self) -> None:
        os.symlink(
            self.random.choice((self.path(), self.random.choice(NAMES), "..", "x" * 4095)), self.path()
        )

    def do_mknod(self) -> None:
        kind = self.random.choice(
            (stat.S_IFREG, stat.S_IFIFO, stat.S_IFSOCK, stat.S_IFCHR, stat.S_IFCHR, stat.S_IFBLK)
        )
        os.mknod(self.path(), kind | 0o644, self.random.choice((0, os.makedev(1, 3), os.makedev(255, 255))))

    def do_bind(self) -> None:
        with socket.socket(socket.AF_UNIX) as bound, socket.socket(socket.AF_UNIX) as client:
            client.setblocking(False)
            path = self.path()
            bound.bind(path)
            bound.listen()
            os.link(path, self.path())
            client.connect(path)

    def do_write(self) -> None:
        os.pwrite(
            self.file(),
            b"x" * self.random.choice((1, 4096, 70000)),
            self.random.choice((0, 1, 4095, 1 << 20)),
        )

    def do_read(self) -> None:
        os.pread(self.file(), 70000, self.random.choice((0, 1, 4095, 1 << 20)))

    def do_size(self) -> None:
        os.ftruncate(self.file(), self.random.choice((0, 1, 4096, 1 << 20, -1)))

    def do_allocate(self) -> None:
        call(
            "fallocate",
            self.file(),
            self.random.choice((0, 1, 3, 16)),
            ctypes.c_long(0),
            ctypes.c_long(70000),
        )

    def do_map(self) -> None:
        with mmap.mmap(self.file(), 4096, self.random.choice((mmap.MAP_SHARED, mmap.MAP_PRIVATE))) as mapped:
            if os.fstat(self.files[-1]).st_size >= 4096:
                mapped[0:1] = b"m"

    def do_copy(self) -> None:
        os.copy_file_range(self.file(), self.file(), 4096)

    def do_send(self) -> None:
        os.sendfile(self.file(), self.file(), 0, 4096)

    def do_sync(self) -> None:
        self.random.choice((os.fsync, os.fdatasync))(self.file())

    def do_stat(self) -> None:
        os.stat(self.path(), follow_symlinks=self.random.random() < 0.5)

    def do_stat_system(self) -> None:
        os.statvfs(self.path())

    def do_list(self) -> None:
        os.listdir(self.random.choice((self.path(), self.file())))

    def do_seek(self) -> None:
        os.lseek(self.file(), self.random.choice((0, -1, 1 << 40)), self.random.randrange(5))

    def do_mode(self) -> None:
        os.chmod(self.path(), self.random.choice((0, 0o755, 0o7777)))

    def do_owner(self) -> None:
        os.chown(
            self.path(),
            self.random.choice((0, 1, -1, 1000)),
            self.random.choice((0, 1, -1)),
            follow_symlinks=False,
        )

    def do_times(self) -> None:
        os.utime(self.path(), self.random.choice(((0, 0), None, (1 << 33, 1))), follow_symlinks=False)

    def do_attribute(self) -> None:
        path, name = self.path(), self.random.choice(ATTRIBUTES)
        match self.random.randrange(4):
            case 0:
                os.setxattr(
                    path, name, self.random.choice((b"y", b"", b"v" * 4096)), self.random.randrange(3)
                )
            case 1:
                os.getxattr(path, name)
            case 2:
                os.removexattr(path, name)
            case _:
                os.listxattr(path, follow_symlinks=False)

    def do_watch(self) -> None:
        mask = self.random.getrandbits(12) | self.random.choice((0, 1 << 31, 1 << 31, 1 << 29, 1 << 24))
        call("inotify_add_watch", self.random.choice(self.watchers), self.path(), ctypes.c_uint32(mask))

    def do_unwatch(self) -> None:
        call("inotify_rm_watch", self.random.choice(self.watchers), self.random.randrange(1, 40))

    def do_read_events(self) -> None:
        watcher = self.random.choice(self.watchers)
        if select.select([watcher], [], [], 0)[0]:
            os.read(watcher, self.random.choice((16, 65536)))

    def do_end_watcher(self) -> None:
        at = self.random.randrange(len(self.watchers))
        os.close(self.watchers[at])
        self.watchers[at] = call("inotify_init1", os.O_NONBLOCK)

    def do_mount(self) -> None:
        if self.random.random() < 0.7:
            return
        kind, data = self.random.choice(
            (
                ("tmpfs", "size=1m"),
                ("proc", ""),
                ("sysfs", ""),
                ("devpts", ""),
                ("mqueue", ""),
                ("cgroup", "memory"),
                ("nosuch", "x=1"),
            )
        )
        call("mount", kind, self.path(), kind, ctypes.c_ulong(0), data)

    def do_bind_mount(self) -> None:
        call("mount", self.path(), self.path(), None, ctypes.c_ulong(self.random.choice(MOUNT_FLAGS)), None)

    def do_overlay(self) -> None:
        lower = ":".join(self.path() for _ in range(self.random.randrange(1, 4)))
        data = self.random.choice(
            (f"lowerdir={lower}", f"lowerdir={lower},upperdir={self.path()},workdir={self.path()}")
        )
        if self.random.random() < 0.3:
            data += ",userxattr"
        call("mount", "overlay", self.path(), "overlay", ctypes.c_ulong(0), data)

    def do_unmount(self) -> None:
        call("umount2", self.path(), self.random.choice((0, 2, 2, 4, 8)))

    def do_directory(self) -> None:
        os.chdir(self.random.choice((self.path(), "/")))

    def do_proc(self) -> None:
        path = f"/proc/{self.random.choice(('self', '1', str(os.getppid())))}/{self.random.choice(PROC)}"
        if os.path.isdir(path):
            os.listdir(path)
        else:
            file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            try:
                os.read(file, 65536)
            finally:
                os.close(file)

    def do_lock(self) -> None:
        call("flock", self.file(), self.random.choice((1, 2, 8)) | 4)

    def do_reopen(self) -> None:
        self.files.append(
            os.open(f"/proc/self/fd/{self.file()}", self.random.choice((os.O_RDONLY, os.O_RDWR, os.O_PATH)))
        )


def overlay(place: str, lower: str, upper: str) -> str:
    """Mount an overlay at ``place``, where its layers are made beside it."""
    for path in (place, lower, upper, f"{upper}-work"):
        os.makedirs(path, exist_ok=True)
    call(
        "mount",
        "overlay",
        place,
        "overlay",
        ctypes.c_ulong(0),
        f"lowerdir={lower},upperdir={upper},workdir={upper}-work",
    )
    return place


def grounds(seed: int) -> list[str]:
    """Directories on the disk, in memory and in overlays of both. The layers are among them."""
    disk = os.path.join(os.path.expanduser("~"), f"calls-{seed}")
    memory = f"/tmp/calls-{seed}"
    for path in (disk, memory):
        os.makedirs(path, exist_ok=True)
    for name in NAMES[:3]:
        os.makedirs(f"{disk}/lower/{name}/{name}", exist_ok=True)
        with open(f"{disk}/lower/{name}/f", "w") as file:
            file.write("lower")
    roots = [disk, memory, f"{disk}/lower"]
    try:
        once = overlay(f"{memory}/once", f"{disk}/lower", f"{memory}/upper")
        twice = overlay(f"{memory}/twice", once, f"{memory}/second")
        roots += [once, once, once, twice, twice, f"{memory}/upper"]
    except OSError as error:
        print(f"no overlay: {error}", file=sys.stderr)
    return roots


def separate(users: bool) -> None:
    """Enter a mount namespace of our own and, with ``users``, a user namespace where we are root."""
    user, group = os.getuid(), os.getgid()
    call("unshare", NEW_MOUNTS | (NEW_USERS if users else 0))
    if users:
        for name, line in (("setgroups", "deny"), ("uid_map", f"0 {user} 1"), ("gid_map", f"0 {group} 1")):
            with open(f"/proc/self/{name}", "w") as file:
                file.write(line)
    call("mount", "none", "/", None, ctypes.c_ulong(RECURSIVE | PRIVATE), None)


def main() -> None:
    seed, seconds = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    separate(users="--same-users" not in sys.argv)
    roots = grounds(seed)
    end_s = time.monotonic() + seconds
    workers = []
    for number in range(WORKERS):
        pid = os.fork()
        if pid == 0:
            count = Worker(seed * WORKERS + number, roots).run(end_s)
            print(count, flush=True)
            os._exit(0)
        workers.append(pid)
    while workers and time.monotonic() < end_s + 5:
        for pid in list(workers):
            if os.waitpid(pid, os.WNOHANG)[0]:
                workers.remove(pid)
        time.sleep(0.05)
    for pid in workers:  # it waits for something that the others have: a lock, a pipe
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()
