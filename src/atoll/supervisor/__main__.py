"""``python -m atoll.supervisor --home PATH --run PATH``: runs one supervisor until it is stopped or idle.

``doctor`` after the options reports as JSON the problems that can stop a sandbox from running, and starts
nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec

from atoll.host import Home, disk_kind, end_holder, ensure_holder, join_holder, lower_rights, write_atomically
from atoll.protocol import error_body
from atoll.supervisor.logs import start_logging
from atoll.supervisor.settings import Settings, read_settings
from atoll.supervisor.state.reserve import BALLAST, EmergencyReserve

ERROR_FILE = "error.json"
_log = logging.getLogger("atoll.supervisor")


def main() -> int:
    """Run the command of the command line, and return the exit code."""
    arguments = _arguments(sys.argv[1:])
    home = Home(arguments.home, run=arguments.run) if arguments.home else Home.default()
    if arguments.command == "doctor":
        from atoll.supervisor.doctor import examine

        sys.stdout.buffer.write(msgspec.json.encode(examine(home)) + b"\n")
        return 0
    error_file = home.run / ERROR_FILE
    try:
        settings = read_settings(os.environ)
        if arguments.idle_exit_s is not None:
            settings = msgspec.structs.replace(settings, idle_exit_s=arguments.idle_exit_s)
        home.make()
        with _locked(home.lock) as mine:
            if mine:
                error_file.unlink(missing_ok=True)
                _supervise(home, settings)
    except Exception as error:  # the client that started this process shows it
        _log.critical("the supervisor cannot continue", exc_info=error)
        with contextlib.suppress(OSError):  # without a run directory there is nowhere to report this
            write_atomically(error_file, msgspec.json.encode(error_body(error)))
        return 1
    return 0


def _supervise(home: Home, settings: Settings) -> None:
    # First of all: on a full disk, even opening the database needs some space.
    EmergencyReserve(home.database.with_name(BALLAST)).begin()
    start_logging(home.log, settings.log_level)
    holder = ensure_holder(home)
    join_holder(holder)
    lower_rights()
    # Import this late: it may start threads, and only a process with one thread can enter a user namespace.
    from atoll.supervisor.serving import serve

    kind = "engine" if settings.disk == "engine" else disk_kind(home.path, holder)
    if asyncio.run(serve(home, settings, kind, complete=not holder.user_namespace)):
        end_holder(home)


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Hold the supervisor's lock. Yields False if another supervisor holds it."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno != errno.EWOULDBLOCK:
                raise
            yield False
        else:
            yield True
    finally:
        os.close(fd)


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m atoll.supervisor", description=__doc__)
    parser.add_argument("--home", type=Path, help="state directory; default: ATOLL_HOME, or the default home")
    parser.add_argument("--run", type=Path, help="directory for sockets and locks")
    parser.add_argument("--idle-exit-s", type=float, help="exit after this many idle seconds")
    parser.add_argument("command", nargs="?", choices=["serve", "doctor"], default="serve")
    parser.add_argument("--json", action="store_true", help="accepted for clients; doctor always prints JSON")
    return parser.parse_args(argv)


if __name__ == "__main__":
    sys.exit(main())
