"""Reports changes in a directory of a sandbox, as they happen."""

from __future__ import annotations

from collections.abc import AsyncIterator

from atoll.guest import watch_event_from
from atoll.sdk._async.agent import AsyncFrames
from atoll.types import WatchEvent


class AsyncWatch:
    """Reports changes in a directory.

    Iterating waits for the next change, as long as the sandbox lives. Close the watch, or use it as a
    context. The path of each event is relative to the watched directory.
    """

    def __init__(self, frames: AsyncFrames, path: str, sandbox_id: str) -> None:
        self._frames = frames
        self._path = path
        self._sandbox_id = sandbox_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path!r} in sandbox {self._sandbox_id}>"

    async def __aenter__(self) -> AsyncWatch:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def __aiter__(self) -> AsyncIterator[WatchEvent]:
        while True:
            yield await self.next()

    async def next(self) -> WatchEvent:
        """Wait for the next change.

        Raises:
            SandboxCrashedError: The sandbox's processes died.
            StateError: Somebody put the sandbox to sleep meanwhile, or an earlier wait was cancelled.
        """
        while True:
            frame = await self._frames.next()
            if frame.kind == "w":
                return watch_event_from(frame.payload)

    def abort(self) -> None:
        """Make a waiting ``next`` end with an error, in any thread or task."""
        self._frames.abort()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._frames.close()
