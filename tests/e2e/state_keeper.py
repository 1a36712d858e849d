"""Runs inside a sandbox: holds what a checkpoint must keep, and tells how it is whenever it is asked on port 7100."""

from __future__ import annotations

import fcntl
import json
import mmap
import os
import random
import socket
import subprocess
import threading
import time
import uuid

PORT = 7100
ECHO_PORT = 7101
OUTSIDE_PORT = 7102
PLACE = "/home/user/kept"
FAR = 5 << 20


def serve_echo(listener: socket.socket) -> None:
    """Send back what comes, on any number of connections."""

    def echo(connection: socket.socket) -> None:
        while data := connection.recv(1000):
            connection.sendall(data)

    while True:
        threading.Thread(target=echo, args=(listener.accept()[0],), daemon=True).start()


class Keeper:
    """Everything that is held."""

    def __init__(self) -> None:
        os.makedirs(PLACE, exist_ok=True)
        os.chdir(PLACE)
        unix = socket.socket(socket.AF_UNIX)
        unix.bind("echo.sock")
        unix.listen()
        tcp = socket.create_server(("127.0.0.1", ECHO_PORT))
        pipe_out, self.pipe = os.pipe()
        if not os.fork():
            # another process on the other end of each connection
            os.close(self.pipe)
            threading.Thread(target=serve_echo, args=(tcp,), daemon=True).start()
            threading.Thread(target=serve_echo, args=(unix,), daemon=True).start()
            with open(pipe_out, "rb", buffering=0) as source, open("piped", "ab", buffering=0) as sink:
                while data := source.read(1000):
                    sink.write(data)
            os._exit(0)
        for unneeded in (unix, tcp):
            unneeded.close()
        self.tcp = socket.create_connection(("127.0.0.1", ECHO_PORT))
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.connect("echo.sock")
        self.deleted = os.open("deleted", os.O_RDWR | os.O_CREAT)
        os.write(self.deleted, b"still here")
        os.pwrite(self.deleted, b"and there", FAR)
        os.unlink("deleted")
        with open("mapped", "wb") as file:
            file.write(b"-" * 8192)
        self.mapped = mmap.mmap(os.open("mapped", os.O_RDWR), 8192)
        self.locked = os.open("locked", os.O_RDWR | os.O_CREAT)
        fcntl.flock(self.locked, fcntl.LOCK_EX)
        self.record = os.open("record", os.O_RDWR | os.O_CREAT)
        fcntl.lockf(self.record, fcntl.LOCK_EX)
        self.asked = 0
        self.random = random.Random(1)
        self.outside = "waits"
        self.monotonic = time.monotonic()
        threading.Thread(target=self.meet_outside, daemon=True).start()

    def meet_outside(self) -> None:
        """Hold a connection from outside the sandbox, and note how it ends."""
        connection = socket.create_server(("", OUTSIDE_PORT)).accept()[0]
        self.outside = "connected"
        try:
            connection.sendall(b"welcome")
            self.outside = f"told {connection.recv(100)!r}"
        except OSError as error:
            self.outside = type(error).__name__

    def answer(self) -> dict[str, object]:
        """Use everything once."""
        self.asked += 1
        self.mapped[0:4] = b"%4d" % self.asked
        os.write(self.pipe, b".")
        earlier, self.monotonic = self.monotonic, time.monotonic()
        return {
            "asked": self.asked,
            "tcp": echoed(self.tcp),
            "unix": echoed(self.unix),
            "new tcp": echoed_anew(socket.AF_INET, ("127.0.0.1", ECHO_PORT)),
            "new unix": echoed_anew(socket.AF_UNIX, "echo.sock"),
            "deleted": (os.pread(self.deleted, 10, 0) + os.pread(self.deleted, 100, FAR - 1)).decode(),
            "mapped": int(open("mapped", "rb").read(4)),
            "flock": subprocess.run(["flock", "--nonblock", "locked", "true"]).returncode,
            "lockf": subprocess.run(["python3", "-c", LOCKF]).returncode,
            "cwd": os.getcwd(),
            "env": os.environ["KEPT"],
            "forward": self.monotonic >= earlier,
            "user random": self.random.random(),
            "uuid": str(uuid.uuid4()),
            "urandom": os.urandom(16).hex(),
            "hostname": socket.gethostname(),
            "outside": self.outside,
        }


LOCKF = """
import fcntl, sys
try:
    fcntl.lockf(open("record", "r+"), fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    sys.exit(1)
"""


def echoed(connection: socket.socket) -> str:
    """Send a word and return what comes back."""
    connection.settimeout(30)
    connection.sendall(b"word")
    return connection.recv(100).decode()


def echoed_anew(family: socket.AddressFamily, address: str | tuple[str, int]) -> str:
    """The same over a new connection."""
    with socket.socket(family) as connection:
        connection.connect(address)
        return echoed(connection)


def main() -> None:
    """Answer for ever."""
    keeper = Keeper()
    listener = socket.create_server(("", PORT))
    while True:
        with listener.accept()[0] as connection:
            try:
                told = keeper.answer()
            except Exception as error:
                told = {"error": repr(error)}
            connection.sendall(json.dumps(told).encode())


if __name__ == "__main__":
    main()
