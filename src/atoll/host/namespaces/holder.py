"""The holder: a process without logic that keeps a home's user and mount namespaces alive."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import msgspec

from atoll.errors import HostError
from atoll.host import syscalls
from atoll.host.files import locked, write_atomically
from atoll.host.home import Home
from atoll.host.namespaces.userns import is_host_root, map_ids
from atoll.host.pids import boot_id, kill_process, open_process, process_alive, start_ticks
from atoll.types.internal import from_json

_PROGRAM = Path(__file__).with_name("holder_program.py")
_START_S = 60.0
_MOST_ANSWER_BYTES = 65536


class Holder(msgspec.Struct, frozen=True, kw_only=True):
    """A running holder.

    ``user_namespace``: its mounts belong to a user namespace, not to the host's root. ``lacks_ids`` says why
    it has only one id of the host; with None it has many.
    """

    pid: int
    start_ticks: int
    boot_id: str
    user_namespace: bool
    lacks_ids: str | None = None


def ensure_holder(home: Home) -> Holder:
    """Return the home's holder.

    Start one if there is none. Concurrent callers in any processes get the same one.

    Raises:
        HostError: The host does not let this user make the namespaces.
    """
    home.make()
    with locked(_lock(home)):
        found = find_holder(home)
        if found is None:
            found = _start(home, "root" if os.geteuid() == 0 else "user")
        return found


def replace_holder(home: Home) -> Holder:
    """Return the home's holder.

    If it has died, start a holder that keeps the namespaces of this process, which had joined the old one.

    Raises:
        HostError: It does not start.
    """
    with locked(_lock(home)):
        return find_holder(home) or _start(home, "heir")


def find_holder(home: Home) -> Holder | None:
    """Return the home's holder if it lives. Changes nothing."""
    try:
        holder = from_json(_record(home).read_bytes(), Holder)
    except (OSError, ValueError):
        return None
    if holder.boot_id != boot_id() or not process_alive(holder.pid, holder.start_ticks):
        return None
    return holder


def join_holder(holder: Holder) -> None:
    """Enter the holder's namespaces. The process must have one thread; its directory is / afterwards.

    Raises:
        HostError: The holder is gone, or this process may not enter.
    """
    fd = open_process(holder.pid, holder.start_ticks)
    if fd is None:
        raise HostError(f"the holder process {holder.pid} is gone", hint="try again: that starts a new one")
    try:
        flags = syscalls.CLONE_NEWNS
        if not _same_user_namespace(holder.pid):
            flags |= syscalls.CLONE_NEWUSER
        syscalls.setns(fd, flags)
        os.chdir("/")
    except OSError as error:
        raise HostError(
            f"the namespaces of the holder process {holder.pid} cannot be entered: {error.strerror}",
            hint="enter them as the user who started it, from a process with one thread",
        ) from error
    finally:
        os.close(fd)


def end_holder(home: Home) -> None:
    """End the home's holder, and with it the mounts and pins that no other process keeps.

    Does nothing if there is no holder.

    Raises:
        HostError: It does not end.
    """
    if not home.run.is_dir():
        return
    with locked(_lock(home)):
        holder = find_holder(home)
        if holder and not kill_process(holder.pid, holder.start_ticks):
            raise HostError(f"the holder process {holder.pid} does not end", hint="restart the host")
        _record(home).unlink(missing_ok=True)


def _lock(home: Home) -> Path:
    return home.run / "holder.lock"


def _record(home: Home) -> Path:
    return home.run / "holder.json"


def _same_user_namespace(pid: int) -> bool:
    return os.stat(f"/proc/{pid}/ns/user").st_ino == os.stat("/proc/self/ns/user").st_ino


def _start(home: Home, kind: str) -> Holder:
    # No buffering, because the child's lines are read from the descriptor itself.
    with subprocess.Popen(
        [sys.executable, "-I", "-S", str(_PROGRAM), kind, str(home.run)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        bufsize=0,
        cwd="/",
        env={key: value for key, value in os.environ.items() if key == "LD_LIBRARY_PATH"},
        start_new_session=True,
    ) as process:
        talk = _Talk(process)
        pid = talk.number()
        started = start_ticks(pid)
        lacks: HostError | None = None
        try:
            if kind == "user":
                talk.expect("unshared")
                lacks = map_ids(pid)
                talk.say("mapped")
            talk.expect("ready")
            if started is None:
                raise HostError("the holder process ended at once", hint="try again")
            holder = Holder(
                pid=pid,
                start_ticks=started,
                boot_id=boot_id(),
                user_namespace=not is_host_root(),
                lacks_ids=lacks.message if lacks else None,
            )
            write_atomically(_record(home), msgspec.json.encode(holder))
            talk.say("recorded")
            talk.wait_until_alone()
        except BaseException:
            if started is not None:
                kill_process(pid, started)
            raise
    return holder


class _Talk:
    """Exchanges lines with the holder while it starts, all before one deadline."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin and process.stdout
        self._in = process.stdin
        self._out = process.stdout
        self._pending = b""
        self._until_s = time.monotonic() + _START_S

    def say(self, line: str) -> None:
        try:
            self._in.write(f"{line}\n".encode())
        except BrokenPipeError:
            raise HostError("the holder process died while starting", hint="try again") from None

    def number(self) -> int:
        line = self.line()
        if not line.isdecimal():
            raise HostError(f"the holder process does not start: {line}", hint="see `atoll doctor`")
        return int(line)

    def wait_until_alone(self) -> None:
        while self._read():
            continue

    def expect(self, wanted: str) -> None:
        line = self.line()
        if line != wanted:
            raise HostError(
                f"the holder's this user cannot create namespaces: {line.removeprefix('error ')}",
                hint="run `atoll doctor`, which names what the host lacks",
            )

    def line(self) -> str:
        while b"\n" not in self._pending:
            data = self._read()
            if not data or len(self._pending) > _MOST_ANSWER_BYTES:
                raise HostError(
                    "the holder process died or hung while starting",
                    hint="run `atoll doctor`, which names what the host lacks",
                )
            self._pending += data
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode(errors="replace")

    def _read(self) -> bytes:
        """Return the next bytes; nothing at the end or after the deadline."""
        waiter = select.poll()
        waiter.register(self._out, select.POLLIN)
        left_s = self._until_s - time.monotonic()
        return os.read(self._out.fileno(), 4096) if left_s > 0 and waiter.poll(left_s * 1000) else b""
