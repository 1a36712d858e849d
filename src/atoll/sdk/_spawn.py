"""Finds the supervisor of a home, and starts it when nobody listens."""

from __future__ import annotations

import contextlib
import math
import os
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import msgspec

from atoll.errors import SupervisorError, VersionMismatchError
from atoll.guest import Body, GuestRequest, HttpClient, HttpHead
from atoll.host import check_programs, start_ticks
from atoll.protocol import (
    PROTOCOL_VERSION,
    DoctorReport,
    EmergencyUnplugged,
    ErrorBody,
    Hello,
    raise_body,
)
from atoll.types.internal import from_json

if TYPE_CHECKING:
    from pathlib import Path

    from atoll.host import Home

_LOCK_S = 90.0
_START_S = 60.0
_HELLO_S = 30.0
_DOCTOR_S = 120.0
_EMERGENCY_S = 60.0
_POLL_S = 0.01
_ERROR_CHARS = 2000
_KEPT_NAMES = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "LANG", "TZ", "TMPDIR", "XDG_RUNTIME_DIR", "PYTHONPATH"}
    # where the system's keyring is asked
    | {"DBUS_SESSION_BUS_ADDRESS"}
    # these say where the credentials for registries are; they contain none
    | {"DOCKER_CONFIG", "REGISTRY_AUTH_FILE"}
)
_KEPT_CA = frozenset(
    {"SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"}
)
_KEPT_PROXIES = frozenset({"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY"})
# the middle process ends at once, so that the supervisor is not our child and leaves no zombie
_DETACH = """
import os, sys
os.setsid()
pid = os.fork()
if pid:
    os.write(1, str(pid).encode())
    os._exit(0)
log = int(sys.argv[1])
os.dup2(os.open(os.devnull, os.O_RDWR), 0)
os.dup2(log, 1)
os.dup2(log, 2)
os.closerange(3, 1 << 16)
os.execv(sys.argv[2], sys.argv[2:])
"""

_checked: dict[str, tuple[int, int]] = {}
_start_by: Callable[[], None] | None = None


def start_by(start: Callable[[], None]) -> None:
    """From now on, call ``start`` whenever this process would start the supervisor itself."""
    global _start_by
    _start_by = start


def supervisor_environment(environ: dict[str, str]) -> dict[str, str]:
    """Return the variables for a supervisor: locations, ATOLL_*, proxies and CA bundles, but no secrets."""

    def kept(name: str) -> bool:
        return (
            name in _KEPT_NAMES
            or name in _KEPT_CA
            or name.upper() in _KEPT_PROXIES
            or name.startswith(("ATOLL_", "LC_"))
        )

    return {name: value for name, value in environ.items() if kept(name)}


def can_start() -> bool:
    """Tell whether a supervisor can run on this machine: it needs Linux."""
    return sys.platform == "linux"


def hello(home: Home, within_s: float = _HELLO_S) -> Hello:
    """Ask the supervisor for its version and identity.

    Raises:
        OSError: Nobody listens, or no answer came in time.
        SupervisorError: What answers is not a supervisor.
    """
    http = HttpClient()
    body: list[bytes] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(within_s)
        sock.connect(str(home.api_socket))
        _check_owner(sock, home)
        sock.sendall(http.request(GuestRequest("GET", "/hello", (("connection", "close"),))))
        while True:
            event = http.next_event()
            if isinstance(event, Body):
                if not event.data:
                    break
                body.append(event.data)
            elif not isinstance(event, HttpHead):
                http.receive(sock.recv(65536))
    try:
        return from_json(b"".join(body), Hello)
    except msgspec.MsgspecError:
        raise SupervisorError(f"the program that listens on {home.api_socket} is not a supervisor") from None


def _check_owner(sock: socket.socket, home: Home) -> None:
    """Refuse a supervisor of another user.

    Only root can reach one, and root would trust what that user's supervisor says.
    """
    _, owner, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if owner != os.geteuid():
        raise home.of_other(owner)


def _identity(home: Home) -> tuple[int, int]:
    status = os.stat(home.api_socket)
    return status.st_ino, status.st_mtime_ns


def is_checked(home: Home) -> bool:
    """Tell whether the version of this very supervisor was already checked.

    Raises:
        OSError: The socket does not exist.
    """
    return _checked.get(str(home.api_socket)) == _identity(home)


def check_version(home: Home, within_s: float | None = None) -> None:
    """Make sure that the supervisor speaks our protocol. It has ``within_s`` seconds to answer.

    Raises:
        OSError: Nobody listens.
        VersionMismatchError: The supervisor has another version.
    """
    seen = _identity(home)
    told = hello(home, within_s or _HELLO_S)
    if told.protocol != PROTOCOL_VERSION:
        raise VersionMismatchError(
            f"the supervisor of {home.path} is version {told.version} and speaks protocol {told.protocol}, "
            f"but this client speaks {PROTOCOL_VERSION}",
            hint="run `atoll stop`, which suspends its sandboxes; the next call starts the right version",
        )
    _checked[str(home.api_socket)] = seen


def running_pid(home: Home) -> int | None:
    """Return the pid of the supervisor, of any version, or None if none runs.

    Raises:
        HostError: The home belongs to another user, or is not a directory.
    """
    try:
        return hello(home).pid
    except (FileNotFoundError, ConnectionError):
        return None
    except (PermissionError, NotADirectoryError) as error:
        raise home.unusable(error) from error


def answers(home: Home, within_s: float) -> bool:
    """Tell whether the supervisor answers soon, or none runs. One that hangs, or is stopped, does not.

    Raises:
        HostError: The home belongs to another user, or is not a directory.
    """
    try:
        hello(home, within_s)
    except TimeoutError:
        return False
    except (FileNotFoundError, ConnectionError):
        return True
    except (PermissionError, NotADirectoryError) as error:
        raise home.unusable(error) from error
    return True


def emergency_unplug(home: Home, refs: Sequence[str], reason: str | None) -> list[EmergencyUnplugged]:
    """Unplug sandboxes, or all without a name, without their supervisor, in a separate process.

    Raises:
        SandboxNotFoundError: There is no such sandbox. Nothing was done.
        SupervisorError: That process failed. The message ends with its output.
    """
    import subprocess

    argv = [sys.executable, "-P", "-m", "atoll.supervisor.emergency_unplug"]
    argv += ["--home", str(home.path), "--run", str(home.run)]
    argv += [f"--reason={reason}"] if reason else []
    argv += ["--", *refs] if refs else ["--all"]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, cwd="/", timeout=_EMERGENCY_S, check=False
        )
        if done.returncode == 0:
            return from_json(done.stdout, list[EmergencyUnplugged])
        raise_body(from_json(done.stdout, ErrorBody))
    except subprocess.TimeoutExpired:
        raise SupervisorError(f"unplugging took more than {_EMERGENCY_S:.0f} s") from None
    except msgspec.MsgspecError:
        words = done.stderr[-_ERROR_CHARS:].decode(errors="replace").strip()
        raise SupervisorError(f"unplugging without the supervisor failed: {words}") from None


def wait_for_end(home: Home, pid: int | None) -> bool:
    """Wait until a supervisor that announced its end has ended.

    Returns False if it still runs after a minute.
    """
    end = time.monotonic() + _START_S
    while _listens(home) or (pid is not None and _lives(pid)):
        if time.monotonic() > end:
            return False
        time.sleep(_POLL_S)
    return True


def doctor(home: Home) -> DoctorReport:
    """Examine this host in a separate process.

    Raises:
        SupervisorError: The examination failed. The message ends with its output.
    """
    import subprocess

    argv = [sys.executable, "-P", "-m", "atoll.supervisor", "doctor", "--json"]
    argv += ["--home", str(home.path), "--run", str(home.run)]
    try:
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DOCTOR_S, check=False
        )
        return from_json(done.stdout, DoctorReport)
    except subprocess.TimeoutExpired:
        raise SupervisorError(f"the check of this host took more than {_DOCTOR_S:.0f} s") from None
    except msgspec.MsgspecError:
        words = done.stderr[-_ERROR_CHARS:].decode(errors="replace").strip()
        raise SupervisorError(f"the check of this host failed: {words}") from None


def ensure_supervisor(home: Home, within_s: float | None = None) -> None:
    """Start the supervisor unless one listens, and wait until it listens. Two callers at once start only one.

    Args:
        home: Its home.
        within_s: When to stop waiting. A supervisor that was started goes on. None means a minute or so.

    Raises:
        TimeoutError: ``within_s`` passed.
        SupervisorError: The supervisor did not start. The message ends with its output.
        UnsupportedError: This install has no engine.
        VersionMismatchError: A supervisor of another version runs.
    """
    if _start_by is not None:
        _start_by()
        check_version(home, within_s)
        return
    check_programs()
    home.make()
    bound = time.monotonic() + within_s if within_s is not None else math.inf
    with _locked(home, bound):
        end = min(time.monotonic() + _START_S, bound)
        while not _answers(home, within_s):
            # A supervisor that is just ending still has the lock that the next one needs.
            if _is_free(home.lock) or time.monotonic() > end:
                break
            time.sleep(_POLL_S)
        else:
            return
        log_end = home.log.stat().st_size if home.log.exists() else 0
        pid = _start(home)
        _wait_for(home, pid, log_end, bound)
    check_version(home, within_s)


def _check_bound(bound: float) -> None:
    if time.monotonic() > bound:
        raise TimeoutError("the supervisor did not start within_s")


def _answers(home: Home, within_s: float | None) -> bool:
    try:
        check_version(home, within_s)
    except (FileNotFoundError, ConnectionError):
        return False
    return True


def _is_free(lock: Path) -> bool:
    """Tell whether no supervisor has the lock of its home."""
    import fcntl  # only Linux has it, and a client of a remote server comes past here on other systems

    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(descriptor)
    return True


@contextlib.contextmanager
def _locked(home: Home, bound: float) -> Iterator[None]:
    import fcntl  # as above

    end = time.monotonic() + _LOCK_S
    descriptor = os.open(home.run / "spawn.lock", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                _check_bound(bound)
                if time.monotonic() > end:
                    raise SupervisorError(
                        f"another client has been starting the supervisor of {home.path} for {_LOCK_S:.0f} s",
                        hint=f"see {home.log}",
                    ) from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _listens(home: Home) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.settimeout(_HELLO_S)
        try:
            sock.connect(str(home.api_socket))
        except (FileNotFoundError, ConnectionRefusedError):
            return False
    return True


def _start(home: Home) -> int:
    """Start the supervisor in its own session and return its pid."""
    import subprocess

    argv = [sys.executable, "-P", "-m", "atoll.supervisor", "--home", str(home.path), "--run", str(home.run)]
    with contextlib.suppress(OSError):  # no earlier start failed
        _told(home).unlink()
    log = os.open(home.log, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        done = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _DETACH, str(log), *argv],
            pass_fds=[log],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd="/",
            env=supervisor_environment(dict(os.environ)),
            timeout=_START_S,
            check=False,
        )
    finally:
        os.close(log)
    if done.returncode or not done.stdout.isdigit():
        raise SupervisorError(f"the supervisor could not be started: {done.stderr.decode(errors='replace')}")
    return int(done.stdout)


def _wait_for(home: Home, pid: int, log_end: int, bound: float) -> None:
    end = time.monotonic() + _START_S
    while not _listens(home):
        _check_bound(bound)
        if not _lives(pid):
            _raise_told(home)
            raise SupervisorError(
                f"the supervisor of {home.path} ended at once: {_words(home, log_end)}",
                hint="`atoll doctor` says what this host lacks",
                retryable=False,
            )
        if time.monotonic() > end:
            raise SupervisorError(
                f"the supervisor of {home.path} did not start within {_START_S:.0f} s: {_words(home, log_end)}",
                hint=f"see {home.log}",
            )
        time.sleep(_POLL_S)


def _told(home: Home) -> Path:
    """Return the path where a supervisor that cannot start writes the reason."""
    return home.run / "error.json"


def _raise_told(home: Home) -> None:
    try:
        body = from_json(_told(home).read_bytes(), ErrorBody)
    except (OSError, ValueError):
        return
    raise_body(body)


def _lives(pid: int) -> bool:
    """Tell whether a process runs. One that has ended counts as gone, even before its exit code is read."""
    return start_ticks(pid) is not None


def _words(home: Home, log_end: int) -> str:
    """Return what the supervisor has written since it was started."""
    with contextlib.suppress(OSError):  # without a log, there is no output
        with home.log.open("rb") as log:
            log.seek(log_end)
            text = log.read()[-_ERROR_CHARS:].decode(errors="replace").strip()
            return text or "it printed nothing"
    return "it left no log"
