# Made by scripts/unasync.py from sdk/_async/places.py: do not edit.
"""Where the sandboxes are: on this machine, or behind a server on another one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from atoll.errors import AtollError, DeadlineError, SupervisorError, UnsupportedError
from atoll.guest import GuestRequest
from atoll.host import Home
from atoll.protocol import DIAL_LIMIT_BYTES, DialAnswer, DialRequest, decode_answer, encode
from atoll.sdk import _server, _spawn
from atoll.sdk._io_sync import Stream, ask_dial_socket, connect_unix, in_thread
from atoll.sdk._server import Server

if TYPE_CHECKING:
    from atoll.sdk._bridge import Bridge

_Value = TypeVar("_Value")
_Headers = tuple[tuple[str, str], ...]
_CONNECT_S = 30.0
DIAL_S = 600.0


@dataclass(frozen=True)
class Here:
    """A home on this machine, whose supervisor is started when it does not run.

    Args:
        home: The home.
        may_start: Whether to start a supervisor.
    """

    home: Home
    may_start: bool = True

    @property
    def where(self) -> Home:
        """The name of this place."""
        return self.home

    def without_starting(self) -> Here:
        """Return the same place, but start no supervisor."""
        return Here(self.home, may_start=False)

    def request(
        self, method: str, path: str, headers: _Headers = (), content: bytes | None = b""
    ) -> GuestRequest:
        """Return a request for the supervisor's path."""
        return GuestRequest(method, path, headers, content)

    def connect(self, within_s: float | None) -> Stream:
        """Connect to the supervisor's API."""
        return self._started(
            lambda: connect_unix(self.home.api_socket, within_s or _CONNECT_S), within_s
        )

    def dial(self, sandbox: str, port: int, within_s: float | None) -> tuple[DialAnswer, int | None]:
        """Connect to a port of a sandbox. The descriptor is None if the answer is an error."""
        packet = encode(DialRequest(sandbox=sandbox, port=port, within_s=within_s))
        answer, descriptors = self._started(
            lambda: ask_dial_socket(self.home.dial_socket, packet, DIAL_LIMIT_BYTES, DIAL_S), None
        )
        told = decode_answer(answer)
        if told.error is not None:
            for descriptor in descriptors:
                os.close(descriptor)
            return told, None
        return told, descriptors[0] if descriptors else None

    def ensure(self) -> None:
        """Start the supervisor if it does not run and can be started."""
        with contextlib.suppress(AtollError, OSError):
            (self.connect(None)).close()

    def _started(self, attempt: Callable[[], _Value], within_s: float | None) -> _Value:
        """Do something that needs the supervisor. If nobody listens, start it and try once more."""
        try:
            if self.may_start and not _spawn.is_checked(self.home):
                in_thread(_spawn.check_version, self.home, within_s)
            return attempt()
        except (FileNotFoundError, ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
            if not self.may_start:
                raise SupervisorError(f"no supervisor runs for {self.home.path}") from None
        except (TimeoutError, PermissionError, NotADirectoryError) as error:
            raise self.explain(error) from error
        try:
            in_thread(_spawn.ensure_supervisor, self.home, within_s)
            return attempt()
        except OSError as error:
            raise self.explain(error) from error

    def explain(self, error: OSError) -> AtollError:
        """Return the caller's error for an error of the connection."""
        if isinstance(error, AtollError):
            return error
        if isinstance(error, TimeoutError):
            return DeadlineError(
                f"the supervisor of {self.home.path} did not answer in time",
                hint=f"see {self.home.log}",
            )
        if isinstance(error, (PermissionError, NotADirectoryError)):
            return self.home.unusable(error)
        return SupervisorError(
            f"the connection to the supervisor of {self.home.path} ended: {error}",
            hint=f"try again: that starts a new one; {self.home.log} says why it ended",
        )


@dataclass(frozen=True)
class There:
    """A server on another machine, which passes requests on to its supervisor."""

    server: Server

    @property
    def home(self) -> Home:
        """There is none here.

        Raises:
            UnsupportedError: Always.
        """
        raise _elsewhere()

    @property
    def where(self) -> Server:
        """The name of this place."""
        return self.server

    def without_starting(self) -> There:
        """Return this place: nothing is started here."""
        return self

    def request(
        self, method: str, path: str, headers: _Headers = (), content: bytes | None = b""
    ) -> GuestRequest:
        """Return a request for the supervisor's path, with the key.

        Raises:
            UnsupportedError: The path is for clients on the supervisor's own machine.
        """
        if path != "/hello" and not path.startswith("/v1/"):
            raise _elsewhere()
        own = (("host", self.server.host), ("x-api-key", self.server.key))
        return GuestRequest(method, f"/atoll{path}", (*own, *headers), content)

    def connect(self, within_s: float | None) -> Stream:
        """Connect to the server."""
        bridge = _bridge()
        try:
            return Stream(in_thread(bridge.connect, self.server, within_s or _CONNECT_S))
        except OSError as error:
            raise self.explain(error) from error

    def dial(self, sandbox: str, port: int, _: float | None) -> tuple[DialAnswer, int | None]:
        """Open a tunnel to a port of a sandbox. The descriptor is None if the answer is an error."""
        bridge = _bridge()
        try:
            told, sock = in_thread(bridge.dial, self.server, sandbox, port, DIAL_S)
        except OSError as error:
            raise self.explain(error) from error
        return told, None if sock is None else sock.detach()

    def ensure(self) -> None:
        """Do nothing: the server keeps its supervisor running."""

    def explain(self, error: OSError) -> AtollError:
        """Return the caller's error for an error of the connection."""
        if isinstance(error, AtollError):
            return error
        url = self.server.url
        if isinstance(error, TimeoutError):
            return DeadlineError(f"{url} did not answer in time", hint="see whether the server runs")
        said = error.strerror or str(error)
        if type(error).__name__ == "SSLCertVerificationError":
            return SupervisorError(
                f"the certificate of {url} is not trusted: {said}",
                hint="set ATOLL_CA to a file with its authority",
            )
        return SupervisorError(f"the connection to {url} failed: {said}", hint="see whether the server runs")


Place = Here | There


def place_of(given: Place | Server | None, *, may_start: bool) -> Place:
    """Return where the sandboxes are; None means the user's choice.

    Raises:
        InvalidSpecError: The environment names a server that cannot be one.
        UnsupportedError: This machine cannot run sandboxes, and no server is chosen.
    """
    if isinstance(given, (Here, There)):
        return given
    server = given or _server.chosen()
    if server is not None:
        return There(server)
    if not _spawn.can_start():
        raise UnsupportedError(
            "atoll runs sandboxes on Linux",
            hint="on this machine, reach a server: `atoll login https://api.sandboxes.example.com`, or set ATOLL_URL",
        )
    return Here(Home.default(), may_start)


def _bridge() -> Bridge:
    # imported only for a server: asyncio and ssl take 50 ms
    from atoll.sdk._bridge import Bridge

    return Bridge.of_process()


def _elsewhere() -> UnsupportedError:
    return UnsupportedError(
        "only the machine with the sandboxes can do that",
        hint="do it there, or set ATOLL_URL=local for the sandboxes of this machine",
    )
