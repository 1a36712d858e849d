# Made by scripts/unasync.py from sdk/_async/watch.py: do not edit.
"""Reports changes in a directory of a sandbox, as they happen."""

from __future__ import annotations

from collections.abc import Iterator

from atoll.guest import watch_event_from
from atoll.sdk._sync.agent import Frames
from atoll.types import WatchEvent


class Watch:
    """Reports changes in a directory.

    Iterating waits for the next change, as long as the sandbox lives. Close the watch, or use it as a
    context. The path of each event is relative to the watched directory.
    """

    def __init__(self, frames: Frames, path: str, sandbox_id: str) -> None:
        self._frames = frames
        self._path = path
        self._sandbox_id = sandbox_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path!r} in sandbox {self._sandbox_id}>"

    def __enter__(self) -> Watch:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[WatchEvent]:
        while True:
            yield self.next()

    def next(self) -> WatchEvent:
        """Wait for the next change.

        Raises:
            SandboxCrashedError: The sandbox's processes died.
            StateError: Somebody put the sandbox to sleep meanwhile, or an earlier wait was cancelled.
        """
        while True:
            frame = self._frames.next()
            if frame.kind == "w":
                return watch_event_from(frame.payload)

    def abort(self) -> None:
        """Make a waiting ``next`` end with an error, in any thread or task."""
        self._frames.abort()

    def close(self) -> None:
        """Stop watching. Idempotent."""
        self._frames.close()
