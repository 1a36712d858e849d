"""Runs a program of Python as if this machine ran macOS or Windows: pretended.py macos|windows -m MODULE|-c CODE [ARG…]

What the standard library and other packages decide by the system was decided before. What atoll does at its import
and later finds the system without what is missing there, and without ``/proc``. A pair of sockets is one of TCP on
Windows, as there.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import getpass
import importlib
import os
import runpy
import select
import selectors
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import tempfile
import types
import webbrowser
from collections.abc import Callable, Mapping
from typing import Any

# They look at sys.platform when they are imported, and would want what is really Windows'.
_FIRST = (
    "anyio._backends._asyncio",
    "anyio.to_thread",
    "click",
    "e2b_dockerfile_utils",
    "rich.console",
    "rich.progress",
    "wsproto.events",
)
_USED = (asyncio, ctypes, getpass, subprocess, tempfile, webbrowser)

_LINUX_ALONE = {
    os: """
        O_DIRECT O_PATH O_TMPFILE copy_file_range eventfd fallocate getrandom getxattr listxattr memfd_create
        pidfd_open posix_fadvise posix_fallocate removexattr sched_getaffinity sched_setaffinity
        sched_setscheduler setns setxattr splice unshare
    """,
    select: "epoll EPOLLIN EPOLLOUT",
    signal: "SIGRTMAX SIGRTMIN sigtimedwait sigwaitinfo",
    socket: """
        AF_ALG AF_NETLINK AF_PACKET AF_VSOCK MSG_CMSG_CLOEXEC MSG_NOSIGNAL SOCK_CLOEXEC SOCK_NONBLOCK
        SO_BINDTODEVICE SO_MARK SO_PEERCRED
    """,
}
_UNIX_ALONE = {
    os: """
        O_CLOEXEC O_DIRECTORY O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC chown chroot ctermid fchdir fchmod fchown fork
        forkpty getegid geteuid getgid getgroups getloadavg getpgid getpgrp getpriority getsid getuid killpg lchown
        mkfifo mknod nice openpty posix_spawn pread preadv pwrite pwritev readv register_at_fork sched_yield
        sendfile set_blocking setgid setpgid setsid setuid statvfs sync sysconf uname wait3 wait4 writev
    """,
    select: "poll POLLERR POLLHUP POLLIN POLLNVAL POLLOUT",
    signal: """
        SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH alarm pause
        pthread_kill pthread_sigmask setitimer siginterrupt sigpending sigwait
    """,
    socket: "AF_UNIX MSG_DONTWAIT SOCK_SEQPACKET SO_REUSEPORT recv_fds send_fds",
}
_UNIX_MODULES = ("fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty")
_AT_A_DIRECTORY = ("link", "mkdir", "open", "rmdir", "stat", "symlink", "unlink", "utime")


def pretend(name: str) -> None:
    """Make this process believe it."""
    for module in _FIRST:
        with contextlib.suppress(ModuleNotFoundError):
            importlib.import_module(module)
    _without(_LINUX_ALONE)
    sys.addaudithook(_no_proc)
    socket.socket.shutdown = _shutdown  # type: ignore[method-assign, assignment]
    selectors.DefaultSelector = selectors.SelectSelector  # type: ignore[misc, assignment]
    if name == "macos":
        sys.platform = "darwin"
        return
    _without(_UNIX_ALONE)
    for module in _UNIX_MODULES:
        sys.modules[module] = None  # type: ignore[assignment]
    for each in _AT_A_DIRECTORY:
        setattr(os, each, _without_directories(getattr(os, each)))
    os.supports_dir_fd = os.supports_fd = os.supports_follow_symlinks = set()
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    os.rename = _rename  # type: ignore[assignment]
    socket.socketpair = _pair_of_tcp  # type: ignore[assignment]
    ssl.enum_certificates = lambda _: []  # type: ignore[attr-defined]
    sys.modules["msvcrt"] = _msvcrt()
    sys.platform = "win32"


def _without(missing: Mapping[types.ModuleType, str]) -> None:
    for module, names in missing.items():
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)


def _shutdown(sock: socket.socket, how: int) -> None:
    """End directions of a connection. Elsewhere this does not wake who accepts at a listener."""
    if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise OSError(57, "Socket is not connected")
    super(socket.socket, sock).shutdown(how)


def _no_proc(event: str, args: tuple[Any, ...]) -> None:
    if event in ("open", "os.listdir") and isinstance(args[0], str) and args[0].startswith("/proc/"):
        raise FileNotFoundError(2, "No such file or directory", args[0])


def _without_directories(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Any:
        at = {"dir_fd", "src_dir_fd", "dst_dir_fd"} & {name for name in kwargs if kwargs[name] is not None}
        if at or (function.__name__ == "utime" and isinstance(args[0], int)):
            raise NotImplementedError(f"{function.__name__} of a descriptor")
        return function(*args, **kwargs)

    return checked


def _rename(source: str, target: str) -> None:
    if os.path.lexists(target):
        raise FileExistsError(17, "File exists", target)
    os.replace(source, target)


def _pair_of_tcp(*_: object) -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        one = socket.create_connection(server.getsockname())
        other, _address = server.accept()
    return one, other


def _msvcrt() -> types.ModuleType:
    module: Any = types.ModuleType("msvcrt")

    def locking(file: int, mode: int, count: int) -> None:
        # of the descriptor, not of the process as those of lockf
        wanted = struct.pack("hhqqi", fcntl.F_WRLCK, os.SEEK_CUR, 0, count, 0)
        try:
            fcntl.fcntl(file, fcntl.F_OFD_SETLK, wanted)
        except BlockingIOError as error:
            raise PermissionError(13, "Permission denied") from error

    module.LK_NBLCK, module.locking = 2, locking
    found: types.ModuleType = module
    return found


def main() -> None:
    system, kind, program, *arguments = sys.argv[1:]
    sys.path.pop(0)
    pretend(system)
    sys.argv = [program, *arguments]
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
    else:
        exec(compile(program, "<pretended>", "exec"), {"__name__": "__main__"})  # noqa: S102


if __name__ == "__main__":
    main()
