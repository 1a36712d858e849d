"""The counts of all sandboxes for their limits, in files that outlive the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from pathlib import Path

from atoll.host import write_atomically
from atoll.network.spending import Spending, Spent
from atoll.types import Policy

_WRITE_S = 1.0
_log = logging.getLogger(__name__)


class Counts:
    """Keeps a file for each sandbox whose limits have counted something. It may lag by a second or two.

    Args:
        path: Returns the file of a sandbox, in a directory that lives as long as the sandbox. None stores
            nothing.
    """

    def __init__(self, path: Callable[[str], Path] | None = None) -> None:
        self._path = path
        self._spending: dict[str, Spending] = {}
        self._changed: set[str] = set()
        self._writing: asyncio.Task[None] | None = None
        self._order = asyncio.Lock()
        self._is_failing = False

    def keep(self, sandbox_id: str, policy: Policy) -> Spending:
        """Return the counts of a sandbox, which count for the rules of a policy from now on."""
        spending = self._spending.get(sandbox_id)
        if spending is None:
            spending = self._spending[sandbox_id] = self._stored(sandbox_id)
        spending.keep(policy)
        return spending

    def add(self, sandbox_id: str, told: Iterable[Spent]) -> None:
        """Add counts from the edge, also for a sleeping sandbox. Ignores a sandbox that is gone."""
        spending = self._spending.get(sandbox_id)
        if spending is None:
            if self._path is None or not self._path(sandbox_id).parent.is_dir():
                return
            spending = self._spending[sandbox_id] = self._stored(sandbox_id)
        spending.add(told)
        if self._path is not None:
            self._changed.add(sandbox_id)
            if self._writing is None:
                self._writing = asyncio.get_running_loop().create_task(self._write_soon())

    def erase(self, sandbox_id: str) -> None:
        """Drop the counts of a sandbox that is gone for ever."""
        self._spending.pop(sandbox_id, None)
        self._changed.discard(sandbox_id)
        if self._path is not None:
            with contextlib.suppress(OSError):  # its directory goes as well
                self._path(sandbox_id).unlink(missing_ok=True)

    async def aclose(self) -> None:
        """Write all unwritten counts."""
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.gather(self._writing, return_exceptions=True)
        await asyncio.shield(self._write())

    def _stored(self, sandbox_id: str) -> Spending:
        if self._path is None:
            return Spending()
        path = self._path(sandbox_id)
        try:
            return Spending(path.read_bytes())
        except FileNotFoundError:
            return Spending()
        except (OSError, ValueError) as error:
            _log.error("%s cannot be read: the limits of the sandbox count from 0: %s", path, error)
            return Spending()

    async def _write_soon(self) -> None:
        try:
            while self._changed:
                await asyncio.sleep(_WRITE_S)
                await asyncio.shield(self._write())
        finally:
            self._writing = None

    async def _write(self) -> None:
        if self._path is None:
            return
        async with self._order:  # an older text must not come later
            changed, self._changed = self._changed, set()
            stored = {one: (self._path(one), self._spending[one].stored()) for one in changed}
            failed = await asyncio.to_thread(_write_all, stored)
        if failed and not self._is_failing:
            _log.error(
                "what limits have counted cannot be written, and is tried again: %s",
                next(iter(failed.values())),
            )
        self._is_failing = bool(failed)
        self._changed |= failed.keys() & self._spending.keys()


def _write_all(stored: dict[str, tuple[Path, bytes]]) -> dict[str, OSError]:
    failed: dict[str, OSError] = {}
    for sandbox_id, (path, data) in stored.items():
        try:
            write_atomically(path, data)
        except FileNotFoundError:
            pass  # the sandbox has gone
        except OSError as error:
            failed[sandbox_id] = error
    return failed
