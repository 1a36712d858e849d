"""Runs inside a sandbox: waits for restores as a program should, and tells on port 7200 what it knows."""

from __future__ import annotations

import ctypes
import json
import os
import random
import socket
import ssl
import threading
import time

PORT = 7200
GENERATION = "/run/atoll/generation"
IN_MODIFY = 2


class Awaiter:
    """Has random generators in its own memory, which must not go on the same way in two copies."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.seen = [self.generation()]
        self.random = random.Random(1)
        self.untouched = random.Random(1)
        ssl.RAND_bytes(16)  # it is seeded before the copies part
        threading.Thread(target=self.wait_for_restores, args=(watch(GENERATION),), daemon=True).start()

    def generation(self) -> int:
        """Read the number of this life."""
        with open(GENERATION) as file:
            return int(file.read())

    def wait_for_restores(self, events: int) -> None:
        """Sleep until the file is written, then seed anew."""
        while os.read(events, 4096):
            with self.changed:
                self.random.seed(os.urandom(32))
                ssl.RAND_add(os.urandom(32), 32.0)
                self.seen.append(self.generation())
                self.changed.notify_all()

    def answer(self) -> dict[str, object]:
        """Tell what is there once the generation of the file has been seen."""
        now = self.generation()
        with self.changed:
            noticed = self.changed.wait_for(lambda: self.seen[-1] == now, 60)
        return {
            "clock": time.time(),
            "seen": self.seen,
            "noticed": noticed,
            "random": self.random.random(),
            "openssl": ssl.RAND_bytes(16).hex(),
            "untouched": self.untouched.random(),
        }


def watch(path: str) -> int:
    """Return a descriptor that can be read once the file has been written."""
    libc = ctypes.CDLL(None, use_errno=True)
    events = libc.inotify_init1(os.O_CLOEXEC)
    if events < 0 or libc.inotify_add_watch(events, path.encode(), IN_MODIFY) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return int(events)


def main() -> None:
    """Answer for ever."""
    awaiter = Awaiter()
    listener = socket.create_server(("", PORT))
    while True:
        with listener.accept()[0] as connection:
            connection.sendall(json.dumps(awaiter.answer()).encode())


if __name__ == "__main__":
    main()
