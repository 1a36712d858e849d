"""A program for the inside of a sandbox whose promises can be checked from outside, and the checking."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass

from atoll import AtollError, Sandbox
from atoll.errors import DeadlineError, NotFoundError, SandboxCrashedError

PORT = 7000
PATIENCE_S = 120.0
_PATH = "/home/user/ledger.py"
_PAUSE_S = 0.002
_TRIES = 20
# What was killed while it stood still for its suspend ends at each waking; its user boots its disk in the end.
_TRIES_WITH_MEMORY = 5

# It keeps a number in memory alone, an append-only log on the root disk, and another one on the volume if there is one.
# An answer says what it has made durable. The volume's log is read anew each time: no rollback takes that one back.
PROGRAM = r"""
import json, os, secrets, socket, threading, zlib

VOLUME, RECORD = "/data/ledger", 24

def record(number):
    return (b"%d %08x" % (number, zlib.crc32(b"%d" % number))).ljust(RECORD - 1) + b"\n"

def kept():
    if not os.path.isdir("/data"):
        return 0, ""
    try:
        data = open(VOLUME, "rb").read()
    except FileNotFoundError:
        return 0, ""
    whole = len(data) // RECORD
    for number in range(whole):
        if data[number * RECORD : (number + 1) * RECORD] != record(number + 1):
            return number, data[number * RECORD:][:99].hex()
    return whole, ""

def keep():
    if not os.path.isdir("/data"):
        return 0
    with open(VOLUME, "ab") as log:
        whole, torn = divmod(os.fstat(log.fileno()).st_size, RECORD)
        if torn:
            log.truncate(whole * RECORD)
        log.write(record(whole + 1))
        log.flush()
        os.fsync(log.fileno())
    return whole + 1

def lines():
    try:
        data = open("/home/user/ledger", "rb").read()
    except FileNotFoundError:
        return 0, 0, ""
    good = end = 0
    for line in data.splitlines(keepends=True):
        number, _, check = line.partition(b" ")
        if not line.endswith(b"\n") or int(check, 16) != zlib.crc32(number) or int(number) != good + 1:
            break
        good, end = good + 1, end + len(line)
    # Only the end of one record that nobody was told of may be torn.
    return good, end, data[end:][:99].hex() if len(data) - end >= 32 else ""

durable, end, broken = lines()
run, memory, turn = secrets.token_hex(8), 0, threading.Lock()
log = os.open("/home/user/ledger", os.O_WRONLY | os.O_CREAT, 0o644)
os.ftruncate(log, end)
os.lseek(log, end, os.SEEK_SET)

def answer(connection):
    global durable, memory
    with connection:
        while wanted := connection.recv(1):
            with turn:
                if wanted == b"+":
                    number = b"%d" % (durable + 1)
                    os.write(log, b"%s %08x\n" % (number, zlib.crc32(number)))
                    os.fsync(log)
                    volume, torn = keep(), ""
                    durable += 1
                    memory += 1
                else:
                    volume, torn = kept()
                told = {
                    "run": run, "memory": memory, "durable": durable, "volume": volume, "broken": broken or torn,
                }
            connection.sendall(json.dumps(told).encode() + b"\n")

def guarded(connection):
    try:
        answer(connection)
    except OSError:
        pass

listener = socket.create_server(("0.0.0.0", 7000), backlog=64)
while True:
    threading.Thread(target=guarded, args=(listener.accept()[0],), daemon=True).start()
"""


@dataclass(frozen=True)
class Entry:
    """What a ledger says: which run of the program it is, its number in memory, and the records on disk and volume."""

    run: str
    memory: int
    durable: int
    broken: str
    volume: int


class Lines:
    """A connection to a ledger: one question, one answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._pending = b""
        connection.settimeout(PATIENCE_S)

    def ask(self, what: bytes) -> Entry:
        """Send ``+`` to have something recorded, ``?`` to look.

        Raises:
            OSError: The connection ended.
        """
        self._connection.sendall(what)
        while b"\n" not in self._pending:
            data = self._connection.recv(4096)
            if not data:
                raise ConnectionResetError("the ledger is gone")
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return Entry(**json.loads(line))


def look(sandbox: Sandbox) -> Entry:
    """What the sandbox's ledger says now; a ledger that does not run, after a crash, is started again.

    The memory of one that cannot be woken is given up, as the error advises.

    Raises:
        AtollError: The sandbox cannot be used.
    """
    failure: Exception | None = None
    for number in range(_TRIES):
        try:
            if number == _TRIES_WITH_MEMORY and isinstance(failure, SandboxCrashedError):
                sandbox.resume(memory=False)
            return _answer(sandbox)
        except (SandboxCrashedError, DeadlineError) as error:
            failure = error  # what was killed a moment ago is noticed now; the next use starts it again
        except OSError as error:
            if isinstance(error, AtollError):
                raise
            failure = error
    raise AssertionError(f"the ledger does not answer: {failure}")


def _answer(sandbox: Sandbox) -> Entry:
    try:
        connection = sandbox.ports.dial(PORT)
    except NotFoundError:
        begin(sandbox)
        connection = sandbox.ports.dial(PORT)
    with connection:
        return Lines(connection).ask(b"?")


def begin(sandbox: Sandbox) -> None:
    """Start the ledger's program and wait until it listens, or somebody else's does."""
    sandbox.files.write(_PATH, PROGRAM)
    sandbox.processes.start(["python3", _PATH]).close()
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            sandbox.ports.dial(PORT).close()
            return
        except NotFoundError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)


class Scribe:
    """Has a ledger record something again and again, until its connection ends or ``stop``.

    Attributes:
        last: The newest answer: all that it says was promised.
        told: All its answers, each with its time in Unix seconds.
    """

    def __init__(self, sandbox: Sandbox, before: Entry) -> None:
        self.last = before
        self.told: list[tuple[float, Entry]] = []
        self._stopped = threading.Event()
        self._connection = sandbox.ports.dial(PORT)
        self._thread = threading.Thread(target=self._write, name="scribe")
        self._thread.start()

    def _write(self) -> None:
        lines = Lines(self._connection)
        with contextlib.suppress(OSError):
            while not self._stopped.wait(_PAUSE_S):
                self.last = lines.ask(b"+")
                self.told.append((time.time(), self.last))

    def stop(self) -> Entry:
        """Stop, and give the newest promise."""
        self._stopped.set()
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._connection.close()
        return self.last
