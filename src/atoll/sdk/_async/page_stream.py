"""An answer of the supervisor that goes on: a page whenever something has changed."""

from __future__ import annotations

from typing import Generic, TypeVar

from atoll.sdk._async.api import AsyncApi
from atoll.sdk._async.http import AsyncAnswer
from atoll.types.internal import from_json

_SILENCE_S = 30.0
_T = TypeVar("_T")


class AsyncPageStream(Generic[_T]):
    """Reads pages, each a line. Empty lines say that the supervisor is still there."""

    def __init__(self, api: AsyncApi, kind: type[_T]) -> None:
        self._api = api
        self._kind = kind
        self._stream: AsyncAnswer | None = None
        self._rest = b""

    async def begin(self, path: str) -> _T | None:
        """Ask anew, and return the first page."""
        self._rest = b""
        self._stream = await self._api.stream("GET", path, silence_s=_SILENCE_S)
        try:
            return await self.next()
        except BaseException:
            self._stream.close()
            raise

    async def next(self) -> _T | None:
        """Return the next page; None at the end of the answer."""
        while self._stream is not None:
            line, newline, rest = self._rest.partition(b"\n")
            if newline:
                self._rest = rest
                if line:
                    return from_json(line, self._kind)
            elif data := await self._stream.read():
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
