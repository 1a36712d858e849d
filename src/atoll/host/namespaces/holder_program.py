"""The holder's program. It makes the namespaces, reports that on its stdout, and then only stays alive.

Run as a script, isolated (`python -I -S`). It imports nothing of atoll, so that it stays small and outlives
an upgrade. Arguments: `user`, `root` or `heir`, and the run directory. An heir replaces a holder that died:
it makes no namespaces and keeps those it was started in.

It exchanges lines with `ensure_holder` over its stdin and stdout. It sends its pid. With `user` it then waits
for a line that says that its ids are mapped. It sends `ready` or `error TEXT`. Once its record is written
and it hears of that, it closes both.
"""

import ctypes
import fcntl
import os
import signal
import sys

_CLONE_NEWNS = 0x00020000
_CLONE_NEWUSER = 0x10000000
_MS_NOSUID_NODEV_NOEXEC = 2 | 4 | 8
# Pins of namespaces and the machines' own directories, both useless after the namespaces' end; and
# checkpoints of forks without their memory. A machine makes a dozen files, which would cost milliseconds on a
# disk.
_IN_MEMORY = ("pins", "m", "forks")
# The memory of these checkpoints, which lives until all copies have read it, see ``CheckpointMemory``. Huge
# pages are allocated and freed a hundred times as fast as small ones.
_PAGES = "pages"
_PAGES_OPTIONS = (b"mode=0700,size=25%,huge=always", b"mode=0700,size=25%")
_MS_REC_SLAVE = 16384 | 1 << 19


def _main(kind: str, run: str) -> None:
    if os.fork():
        os._exit(0)  # so that init, not a client, is the parent
    _be_nobodys()
    _say(str(os.getpid()))
    try:
        if kind != "heir":
            _make_namespaces(kind, run)
    except OSError as error:
        _say(f"error {error.strerror}: {error.filename}")
        os._exit(1)
    _say("ready")
    if not sys.stdin.readline():
        os._exit(1)  # the process that asked for a holder died before it recorded where the holder is
    _keep_from_cleaners(run)
    _set_title(b"atoll-holder " + os.fsencode(run))
    _forget_stdio()
    while True:
        signal.pause()


def _be_nobodys() -> None:
    os.chdir("/")
    os.umask(0o077)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])


def _make_namespaces(kind: str, run: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def check(result: int, what: str) -> None:
        if result < 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)

    places = [os.path.join(run, name) for name in _IN_MEMORY]
    pages = os.path.join(run, _PAGES)
    for place in (*places, pages):
        os.makedirs(place, mode=0o700, exist_ok=True)
    if kind == "user":
        check(libc.unshare(_CLONE_NEWUSER | _CLONE_NEWNS), "creating a user namespace")
        _say("unshared")
        if sys.stdin.readline() != "mapped\n":
            os._exit(1)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
    else:
        check(libc.unshare(_CLONE_NEWNS), "creating a mount namespace")
    # Later mounts and unmounts of the host appear here too, but no mount made here appears on the host.
    check(libc.mount(b"none", b"/", None, ctypes.c_ulong(_MS_REC_SLAVE), None), "separating the mounts")
    flags = ctypes.c_ulong(_MS_NOSUID_NODEV_NOEXEC)

    def mount(place: str, options: bytes) -> int:
        return int(libc.mount(b"atoll", os.fsencode(place), b"tmpfs", flags, options))

    for place in places:
        check(mount(place, b"mode=0700"), f"mounting {place}")
    # Kernels without huge pages refuse the option.
    if all(mount(pages, options) for options in _PAGES_OPTIONS):
        check(-1, f"mounting {pages}")


def _say(line: str) -> None:
    os.write(1, line.encode("utf-8", "replace") + b"\n")


def _forget_stdio() -> None:
    null = os.open("/dev/null", os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    if null > 2:
        os.close(null)


def _keep_from_cleaners(run: str) -> None:
    # systemd-tmpfiles leaves a directory and its content alone while a process holds a lock on it.
    fcntl.flock(os.open(run, os.O_RDONLY | os.O_DIRECTORY), fcntl.LOCK_SH)


def _set_title(title: bytes) -> None:
    with open("/proc/self/comm", "wb") as comm:
        comm.write(b"atoll-holder")
    with open("/proc/self/stat", "rb") as stat:
        fields = stat.read().rpartition(b")")[2].split()
    # Fields 48 and 49 of proc(5): where the arguments are in memory.
    start, end = int(fields[45]), int(fields[46])
    if 0 < start < end - 1:
        room = end - start - 1
        ctypes.memmove(start, title[:room].ljust(room, b"\0") + b"\0", room + 1)


if __name__ == "__main__":
    _main(sys.argv[1], sys.argv[2])
