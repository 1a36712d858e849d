"""Recognizes shortages of the host from errors of its kernel."""

from __future__ import annotations

import errno

from atoll.errors import AtollError, ShortageError

_FILES = (
    "the process has as many files open as it may (`ulimit -n`)",
    "raise the hard limit, LimitNOFILE= in systemd or nofile in /etc/security/limits.conf, and `atoll stop`; or "
    "have fewer sandboxes awake at once",
)
_ALL_FILES = (
    "all programs of the host together have as many files open as its kernel allows (fs.file-max)",
    "raise it with `sysctl fs.file-max=NUMBER`, or end a program that holds many",
)
_PROCESSES = (
    "the host refuses more processes and threads (`ulimit -u`, pids.max, kernel.pid_max or kernel.threads-max)",
    "raise the limit, TasksMax= in systemd or nproc in /etc/security/limits.conf; or have fewer sandboxes awake",
)
_MEMORY = ("the host has no memory left for this", "suspend or kill sandboxes, or end other programs")
_BY_NUMBER = {
    errno.EMFILE: _FILES,
    errno.ENFILE: _ALL_FILES,
    errno.EAGAIN: _PROCESSES,
    errno.ENOMEM: _MEMORY,
    errno.ENOBUFS: _MEMORY,
}


def shortage_of(error: BaseException) -> ShortageError | None:
    """The error for clients if the host lacks descriptors, processes or memory, or if that is the error's cause.

    EAGAIN means that only from a call that waits for nothing, such as the start of a program.
    """
    reason: BaseException | None = error
    while reason is not None and not isinstance(reason, ShortageError):
        if (told := _told(reason)) is not None:
            return ShortageError(told[0], hint=told[1])
        reason = reason.__cause__
    return reason


def check_shortage(error: BaseException) -> None:
    """Raise the error of ``shortage_of``, if there is one: it would be taken for something else.

    Raises:
        ShortageError: The host lacks something.
    """
    if (shortage := shortage_of(error)) is not None:
        raise shortage from error


def _told(error: BaseException) -> tuple[str, str] | None:
    if isinstance(error, MemoryError):
        return _MEMORY
    if isinstance(error, RuntimeError) and "start new thread" in str(error):
        return _PROCESSES
    if isinstance(error, OSError) and not isinstance(error, AtollError):
        return _BY_NUMBER.get(error.errno or 0)
    return None
