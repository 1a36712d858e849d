# Made by scripts/unasync.py from sdk/_async/alerts.py: do not edit.
"""What a person may want to know at once, as the rules over the audit log find it."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

from atoll.errors import AtollError, InvalidSpecError, SupervisorError
from atoll.sdk._sync.api import Api
from atoll.sdk._sync.page_stream import PageStream
from atoll.sdk._io_sync import Background, call, sleep
from atoll.types import Alert, AlertPage
from atoll.types.internal import check_number, check_text

_AGAIN_S = 0.5
_log = logging.getLogger("atoll")

_Alerts = list[Alert]
Handle = Callable[[Alert], Any] | Callable[[Alert], Any]
"""Gets each alert."""


class Alerts:
    """Shows alerts. A server shows a team those of its own sandboxes."""

    @staticmethod
    def list(*, sandbox: str | None = None, newest: int = 500) -> _Alerts:
        """List the newest alerts, oldest first. Older ones are in the audit log.

        Args:
            sandbox: Only those about the sandbox with this id or name.
            newest: At most so many. 500 are kept for each team.
        """
        check_number("newest", newest, least=0, whole=True, hint="give a number from 0 on")
        with contextlib.closing(Api()) as api:
            return (api.call("GET", _path("", sandbox, newest=newest), AlertPage)).alerts

    @staticmethod
    def follow(*, sandbox: str | None = None, newest: int = 0) -> Iterator[Alert]:
        """Iterate over new alerts as they are raised, across restarts of the supervisor. It never ends.

        Args:
            sandbox: Only those about the sandbox with this id or name.
            newest: Begin with so many earlier ones.

        Raises:
            SandboxNotFoundError: There is no such sandbox, or none any more.
        """
        check_number("newest", newest, least=0, whole=True, hint="give a number from 0 on")
        with (
            contextlib.closing(Api()) as api,
            contextlib.closing(AlertStream(api, sandbox, newest)) as stream,
        ):
            for alert in stream:
                yield alert

    @staticmethod
    def on_alert(handle: Handle, *, sandbox: str | None = None) -> Handling:
        """Call a function with each new alert, while the context lasts: ``with Alerts.on_alert(handle):``.

        Args:
            handle: Gets one ``Alert`` after the other, in a thread of its own.
            sandbox: Only those about the sandbox with this id or name.
        """
        return Handling(handle, sandbox)


class AlertStream:
    """Iterates over alerts as they come, across restarts of the supervisor."""

    def __init__(self, api: Api, sandbox: str | None, newest: int) -> None:
        self._sandbox = sandbox
        self._from: dict[str, int] = {"newest": newest}
        self._pages = PageStream(api, AlertPage)
        self._first: AlertPage | None = None
        self._ended = False

    def begin(self) -> None:
        """Have alerts come from now on."""
        self._first = self._pages.begin(_path("/follow", self._sandbox, **self._from))

    def __iter__(self) -> Iterator[Alert]:
        while not self._ended:
            try:
                if self._first is None:
                    self.begin()
                while (page := self._first or self._pages.next()) is not None:
                    self._first = None
                    self._from = {"after": page.next}
                    for alert in page.alerts:
                        yield alert
            except AtollError as error:
                if self._ended:
                    return
                if not isinstance(error, SupervisorError):
                    raise
            if not self._ended:
                sleep(_AGAIN_S)

    def end(self) -> None:
        """End the iteration, from any thread or task."""
        self._ended = True
        self._pages.abort()

    def close(self) -> None:
        """Drop what was not read."""
        self._pages.close()


class Handling:
    """Gives alerts to a function, while the context lasts."""

    def __init__(self, handle: Handle, sandbox: str | None) -> None:
        if not callable(handle):
            raise InvalidSpecError("on_alert takes a function", hint="give one that takes an Alert")
        self._handle = handle
        self._sandbox = sandbox
        self._background = Background()
        self._api: Api | None = None
        self._stream: AlertStream | None = None

    def __enter__(self) -> None:
        self._api = Api()
        self._stream = AlertStream(self._api, self._sandbox, 0)
        try:
            self._stream.begin()
        except BaseException:
            self._api.close()
            raise
        self._background.__enter__()
        self._background.start(self._run, self._stream)

    def __exit__(self, *error: object) -> None:
        if self._stream is not None:
            self._stream.end()
        try:
            self._background.__exit__(*error)  # type: ignore[arg-type]
        finally:
            if self._stream is not None:
                self._stream.close()
            if self._api is not None:
                self._api.close()

    def _run(self, stream: AlertStream) -> None:
        try:
            for alert in stream:
                try:
                    call(self._handle, alert)
                except Exception:  # the next alert must not be missed for it
                    _log.exception("the function for alert %s failed", alert.alert_id)
        except AtollError as error:  # the sandbox is killed
            _log.info("alerts are not handled any more: %s", error)


def _path(rest: str, sandbox: str | None, **query: int) -> str:
    wanted: dict[str, object] = dict(query)
    if sandbox is not None:
        check_text("sandbox", sandbox)
        wanted["sandbox"] = sandbox
    return f"/v1/alerts{rest}?{urlencode(wanted)}"
