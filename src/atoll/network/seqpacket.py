"""The sockets on which the home's own programs listen: they keep messages apart."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path

_BACKLOG = 16


def listen_at(path: Path) -> socket.socket:
    """Return a listener at a path, replacing any file there. The caller owns it.

    Raises:
        OSError: The path cannot be used.
    """
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            listener.bind(short)
        listener.listen(_BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def connect_to(path: Path) -> socket.socket:
    """Return a connection to the listener at a path. The caller owns it.

    Raises:
        OSError: There is no listener.
    """
    made = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with _short(path) as short:
            made.connect(short)
    except BaseException:
        made.close()
        raise
    return made


@contextlib.contextmanager
def _short(path: Path) -> Iterator[str]:
    """A path of a socket that is short enough for the kernel, wherever it lies."""
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{directory}/{path.name}"
    finally:
        os.close(directory)
