"""Runs a part of a test in a process of its own, forked because tests are functions in functions."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import time
import traceback
import warnings
from collections.abc import Callable

# Less than a test may take, so that a child that hangs is asked where it stands.
CHILD_S = 280.0
LAST_WORDS_S = 5.0


def in_child(work: Callable[[], None]) -> str:
    """Call ``work`` in a child; the traceback of its failure, or where its threads stood when it hung, or nothing."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # Of a fork beside other threads, none of which the child needs.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        os.close(reader)
        _be_child(work, writer)
    os.close(writer)
    pidfd = os.pidfd_open(child)
    try:
        told, ended = _read(reader, CHILD_S)
        if not ended:
            signal.pidfd_send_signal(pidfd, signal.SIGUSR1)
            told += b"it hung:\n" + _read(reader, LAST_WORDS_S)[0]
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    except BaseException:
        signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        raise
    finally:
        os.close(pidfd)
        os.close(reader)
        _, status = os.waitpid(child, 0)
    return told.decode(errors="replace") or (f"the child ended with {status}" if status else "")


def _be_child(work: Callable[[], None], writer: int) -> None:
    # By a signal, as a thread that watches would keep the child from joining namespaces.
    faulthandler.register(signal.SIGUSR1, file=writer)
    status = 1
    try:
        work()
        status = 0
    except BaseException:
        with open(writer, "w", closefd=False) as report:
            report.write(traceback.format_exc())
    finally:
        os._exit(status)


def _read(reader: int, timeout_s: float) -> tuple[bytes, bool]:
    """What comes, and whether that is all."""
    read = b""
    end = time.monotonic() + timeout_s
    while (left := end - time.monotonic()) > 0:
        if select.select([reader], [], [], left)[0]:
            if not (piece := os.read(reader, 1 << 16)):
                return read, True
            read += piece
    return read, False
