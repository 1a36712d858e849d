"""A process that starts the supervisor for a server. It keeps the rights for that, and obeys only the server.

It also notices the server's death.
"""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import threading
from collections.abc import Callable, Iterator

from atoll.errors import AtollError, SupervisorError
from atoll.sdk import Teams, for_servers

_FILES = 1 << 16
_START_S = 300.0
_ANSWER_BYTES = 4096
_ASKED, _DONE, _OVER = b"?", b"!", b"."


@contextlib.contextmanager
def supervisor_starter(at_crash: Callable[[], object]) -> Iterator[None]:
    """Fork a process that starts the supervisor whenever this one needs it, as long as the context lasts.

    Call this while the process still has its rights and a single thread.

    Args:
        at_crash: Called in that process if this one dies inside the context.
    """
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if os.fork() == 0:
        # no code of the server may run on here, even after an error
        with contextlib.suppress(BaseException):
            number = far.fileno()
            os.closerange(3, number)
            os.closerange(number + 1, _FILES)
            _serve(far, at_crash)
        os._exit(0)
    far.close()
    near.settimeout(_START_S)
    lock = threading.Lock()

    def start() -> None:
        with lock:
            _ask(near)

    for_servers.start_by(start)
    with near:
        try:
            yield
        finally:
            with contextlib.suppress(OSError):  # it may have died
                near.send(_OVER)


def raise_limits() -> None:
    """Raise this process's limit of open files as far as allowed, because each request has two."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(most, _FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


def _ask(near: socket.socket) -> None:
    try:
        near.send(_ASKED)
        told = near.recv(_ANSWER_BYTES)
    except OSError as error:
        raise SupervisorError(f"the process that starts the supervisor is gone: {error}") from None
    if told != _DONE:
        raise SupervisorError(
            told.decode(errors="replace") or "the process that starts the supervisor has ended"
        )


def _serve(far: socket.socket, at_crash: Callable[[], object]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    while (heard := far.recv(len(_ASKED))) == _ASKED:
        try:
            # any call starts a supervisor
            Teams.list()
        except AtollError as error:
            far.send(str(error).encode()[:_ANSWER_BYTES])
        else:
            far.send(_DONE)
    if heard != _OVER:
        at_crash()
