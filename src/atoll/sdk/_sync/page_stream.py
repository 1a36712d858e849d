# Made by scripts/unasync.py from sdk/_async/page_stream.py: do not edit.
"""An answer of the supervisor that goes on: a page whenever something has changed."""

from __future__ import annotations

from typing import Generic, TypeVar

from atoll.sdk._sync.api import Api
from atoll.sdk._sync.http import Answer
from atoll.types.internal import from_json

_SILENCE_S = 30.0
_T = TypeVar("_T")


class PageStream(Generic[_T]):
    """Reads pages, each a line. Empty lines say that the supervisor is still there."""

    def __init__(self, api: Api, kind: type[_T]) -> None:
        self._api = api
        self._kind = kind
        self._stream: Answer | None = None
        self._rest = b""

    def begin(self, path: str) -> _T | None:
        """Ask anew, and return the first page."""
        self._rest = b""
        self._stream = self._api.stream("GET", path, silence_s=_SILENCE_S)
        try:
            return self.next()
        except BaseException:
            self._stream.close()
            raise

    def next(self) -> _T | None:
        """Return the next page; None at the end of the answer."""
        while self._stream is not None:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                if line:
                    return from_json(line, self._kind)
            elif data := self._stream.read():
                self._rest += data
            else:
                break
        return None

    def abort(self) -> None:
        """End it, from any thread or task."""
        if self._stream is not None:
            self._stream.abort()

    def close(self) -> None:
        """Drop what was not read."""
        if self._stream is not None:
            self._stream.close()
