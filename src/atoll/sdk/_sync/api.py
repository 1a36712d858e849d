# Made by scripts/unasync.py from sdk/_async/api.py: do not edit.
"""The API of a home's supervisor, as its clients call it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar
from urllib.parse import quote

import msgspec

from atoll.errors import AtollError, DeadlineError, SupervisorError
from atoll.guest import GuestRequest
from atoll.host import Home
from atoll.protocol import REQUEST_HEADER, ErrorBody, StreamLine, caller_header, raise_body
from atoll.sdk._sync.http import Answer, Pool, Upload
from atoll.sdk._sync.places import Place, place_of
from atoll.sdk._bytes import MIB
from atoll.sdk._caller import caller
from atoll.sdk._deadline import Deadline, check_timeout
from atoll.sdk._io_sync import Stream, call, shielded
from atoll.sdk._notices import tell_recovery
from atoll.sdk._server import Server
from atoll.sdk._tracing import calling
from atoll.types import Progress
from atoll.types.internal import as_json, check_text, from_json

_Value = TypeVar("_Value")
_Handle = TypeVar("_Handle")
_Headers = tuple[tuple[str, str], ...]
_ANSWER_BYTES = 64 * MIB
SHORT_S = 60.0
LONG_S = 1800.0
_UNDO_S = 5.0


def ref(name: str) -> str:
    """Return an id or name as a part of a URL.

    Raises:
        InvalidSpecError: The id or name is not a text.
    """
    check_text("the id or name", name)
    return quote(name, safe="")


@contextlib.contextmanager
def closed_on_error(api: Api) -> Iterator[Api]:
    """Close the connections if the body of the context fails."""
    try:
        yield api
    except BaseException:
        api.close()
        raise


class Api:
    """Sends requests to the supervisor of one home, and starts the supervisor if it does not run.

    A server on another machine passes them on to its supervisor.

    Args:
        place: Where the sandboxes are; None means the user's choice.
        may_start: Whether to start a supervisor.
        kept: How many idle connections to keep.
    """

    _shared: Api | None = None

    def __init__(
        self, place: Place | Server | None = None, *, may_start: bool = True, kept: int = 8
    ) -> None:
        self.place: Place = place_of(place, may_start=may_start)
        self._within_s: float | None = None
        shared = Api._shared
        self._lent = shared is not None and may_start and shared.place == self.place
        if shared is not None and self._lent:
            self._pool: Pool = shared._pool
        else:
            # uvicorn closes connections after 5 idle seconds; a call must not start at that moment
            self._pool = Pool(self._connect, self.place.explain, idle_s=3.0, kept=kept)

    @property
    def home(self) -> Home:
        """The home on this machine.

        Raises:
            UnsupportedError: The sandboxes are on another machine.
        """
        return self.place.home

    @classmethod
    @contextlib.contextmanager
    def sharing(cls, kept: int) -> Iterator[None]:
        """Let all calls of the process share connections meanwhile, ``kept`` idle ones at most."""
        Api._shared = api = cls(kept=kept)
        try:
            yield
        finally:
            Api._shared = None
            api.close()

    def call(
        self,
        method: str,
        path: str,
        kind: type[_Value],
        body: object = None,
        *,
        timeout_s: float = SHORT_S,
        repeatable: bool | None = None,
    ) -> _Value:
        """Make one call and read its answer as ``kind``."""
        answer = self._ask(method, path, body, (), Deadline(timeout_s), repeatable)
        return _decoded(answer.read_all(_ANSWER_BYTES), kind)

    def delete(self, path: str) -> None:
        """Make a DELETE call, whose answer has no body."""
        answer = self._ask("DELETE", path, None, (), Deadline(LONG_S), None)
        answer.read_all(_ANSWER_BYTES)

    def make(
        self,
        path: str,
        kind: type[_Value],
        body: object,
        handle: Callable[[_Value], _Handle],
        *,
        on_progress: Callable[[Progress], object] | None = None,
        within_s: float | None = None,
    ) -> _Handle:
        """Make a call that creates sandboxes, and return a handle on them.

        A caller stopped before that leaves none.

        Args:
            path: The route.
            kind: The type of the answer.
            body: The body of the request.
            handle: Makes the handle.
            on_progress: Called with progress reports.
            within_s: When to give up, starting the supervisor included. None means half an hour.

        Raises:
            InvalidSpecError: ``within_s`` is not a length of time.
            DeadlineError: ``within_s`` passed.
        """
        check_timeout(within_s, "within_s")
        token = os.urandom(16).hex()
        deadline = Deadline(within_s or LONG_S, whole=within_s is not None)
        self._within_s = within_s
        try:
            headers = ((REQUEST_HEADER, token),)
            value = self.long_call(
                "POST", path, kind, body, headers, on_progress=on_progress, deadline=deadline
            )
            self._within_s = None
            # No statement may follow: an interruption there would leave a sandbox that nobody has a handle
            # on.
            return handle(value)
        except BaseException as error:
            self._within_s = None
            self.close()
            self._undo(token)
            if within_s is not None and deadline.passed and isinstance(error, DeadlineError):
                raise DeadlineError(
                    f"it was not ready within {within_s:g} s",
                    hint="give a longer within_s; a pull or build that it waited for continues",
                ) from error
            raise

    def _undo(self, token: str) -> None:
        """Kill everything that a request made or still makes.

        Closing the connection cancels a request only until its answer is read.
        """
        with shielded(_UNDO_S), contextlib.suppress(AtollError, OSError):
            with contextlib.closing(Api(self.place.without_starting())) as api:
                path = f"/v1/requests/{token}"
                answer = api._ask("DELETE", path, None, (), Deadline(_UNDO_S), None)
                answer.read_all(_ANSWER_BYTES)

    def stream(
        self, method: str, path: str, body: object = None, *, silence_s: float = SHORT_S
    ) -> Answer:
        """Make a call whose answer is read as it arrives, without a size limit."""
        return self._ask(method, path, body, (), Deadline(None, silence_s=silence_s), None)

    def upload(self, path: str, kind: type[_Value], body: Upload, length: int | None = None) -> _Value:
        """Send a body of any size and read the answer as ``kind``."""
        headers = (("content-type", "application/octet-stream"), caller_header(caller()))
        request = self.place.request("PUT", path, headers, None)
        # A silent supervisor may be waiting for its disk, which has to write the whole body.
        deadline = Deadline(None, silence_s=LONG_S)
        answer = _checked(self._pool.ask(request, deadline, body=body, length=length))
        return _decoded(answer.read_all(_ANSWER_BYTES), kind)

    def send(self, method: str, path: str, body: object) -> None:
        """Make a call whose answer has no body."""
        answer = self._ask(method, path, body, (), Deadline(SHORT_S), None)
        answer.read_all(_ANSWER_BYTES)

    def hold(self, method: str, path: str, kind: type[_Value]) -> tuple[_Value, Answer]:
        """Make a call whose answer begins with a line and stays open.

        Closing it, or dying, ends what the call holds.
        """
        answer = self._ask(method, path, None, (), Deadline(SHORT_S), None)
        try:
            data = b""
            while not data.endswith(b"\n") and (piece := answer.read()):
                data += piece
            return _decoded(data, kind), answer
        except BaseException:
            answer.close()
            raise

    def long_call(
        self,
        method: str,
        path: str,
        kind: type[_Value],
        body: object = None,
        headers: _Headers = (),
        *,
        on_progress: Callable[[Progress], object] | None = None,
        deadline: Deadline | None = None,
    ) -> _Value:
        """Make a call that may take minutes and reports its progress."""
        bound = deadline or Deadline(LONG_S)
        if on_progress is None:
            answer = self._ask(method, path, body, headers, bound, None)
            return _decoded(answer.read_all(_ANSWER_BYTES), kind)
        headers = (*headers, ("accept", "application/x-ndjson"))
        answer = self._ask(method, path, body, headers, bound, None)
        rest = b""
        try:
            while data := answer.read():
                *lines, rest = (rest + data).split(b"\n")
                for line in filter(None, lines):
                    told = _decoded(line, StreamLine)
                    if told.error is not None:
                        raise_body(told.error)
                    if told.progress is not None:
                        call(on_progress, told.progress)
                    if told.result is not msgspec.UNSET:
                        # Read to the end: an answer that was not read counts as not received.
                        answer.read_all(_ANSWER_BYTES)
                        return _decoded(told.result, kind)
        finally:
            answer.close()
        raise SupervisorError("the supervisor's answer ended before its result")

    def dial(self, sandbox: str, port: int, within_s: float | None = None) -> int:
        """Connect to a port of a sandbox, waking it first, and return the connection's descriptor.

        ``within_s`` bounds how long a guest that runs may take to accept it; None is the supervisor's own bound.
        """
        told, descriptor = self.place.dial(sandbox, port, within_s)
        if told.error is not None:
            raise_body(told.error)
        if descriptor is None:
            raise SupervisorError("the supervisor sent no connection", sandbox_id=told.sandbox_id)
        if told.recovered is not None:
            tell_recovery(told.sandbox_id or sandbox, told.recovered)
        return descriptor

    def relay(self, request: GuestRequest, body: Upload | None, length: int | None) -> Answer:
        """Send a request as it is, and return its answer unread, whatever its status."""
        return self._pool.ask(request, Deadline(LONG_S), body=body, length=length)

    def ensure(self) -> None:
        """Start the supervisor if it does not run and can be started."""
        self.place.ensure()

    def _ask(
        self,
        method: str,
        path: str,
        body: object,
        headers: _Headers,
        deadline: Deadline,
        repeatable: bool | None,
    ) -> Answer:
        if body is not None:
            headers = (*headers, ("content-type", "application/json"))
        if method != "GET":
            headers = (*headers, caller_header(caller()))
        content = b"" if body is None else as_json(body)
        with calling(method, path) as span:
            answer = self._pool.ask(
                self.place.request(method, path, (*headers, *span.headers), content),
                deadline,
                repeatable=method == "GET" if repeatable is None else repeatable,
            )
            span.answered(answer.status)
            return _checked(answer)

    def _connect(self, _: float | None) -> Stream:
        return self.place.connect(self._within_s)

    def close(self) -> None:
        """Close its own idle connections."""
        if not self._lent:
            self._pool.close()


def _checked(answer: Answer) -> Answer:
    """Return the answer if it is a success; else raise its error."""
    if answer.status >= 400:
        raise_body(_error_body(answer.status, answer.read_all(_ANSWER_BYTES)))
    return answer


def ignored(_: Progress) -> None:
    """Ignore a progress report. Asking for progress lets the supervisor notice when its client leaves."""


def _decoded(data: bytes | msgspec.Raw, kind: type[_Value]) -> _Value:
    try:
        return from_json(data, kind)
    except msgspec.MsgspecError as error:
        raise SupervisorError(f"the supervisor sent an invalid answer: {error}") from None


def _error_body(status: int, data: bytes) -> ErrorBody:
    try:
        return from_json(data, ErrorBody)
    except msgspec.MsgspecError:
        return ErrorBody(code="internal", message=f"the supervisor answered with status {status}")
