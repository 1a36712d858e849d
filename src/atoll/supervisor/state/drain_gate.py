"""The gate of a drained home, where nothing starts or wakes. Its file outlives a reboot of the host."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from atoll.errors import DrainingError
from atoll.host import write_atomically
from atoll.types.internal import from_json

_log = logging.getLogger(__name__)


class DrainRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A drain: its start, and the ids of the sandboxes that ran before and are to run again afterwards.

    ``ending`` says that the drain is over and that these sandboxes are being woken.
    """

    since: float
    sandboxes: tuple[str, ...] = ()
    ending: bool = False


class DrainGate:
    """Lets operations pass that make sandboxes run, unless the home is drained.

    Args:
        file: Where the record of a drain is.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._record: DrainRecord | None = None
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    def load(self) -> None:
        """Read the record of an earlier supervisor. A damaged one counts as a drain without sandboxes."""
        try:
            self._record = from_json(self._file.read_bytes(), DrainRecord)
        except FileNotFoundError:
            self._record = None
        except (OSError, ValueError) as error:
            _log.error("the record of the drain cannot be read: %s", error)
            self._record = DrainRecord(since=0.0)

    @property
    def record(self) -> DrainRecord | None:
        """The drain that has begun and is not over, if there is one."""
        return self._record

    @property
    def is_closed(self) -> bool:
        """Whether nothing passes."""
        return self._record is not None and not self._record.ending

    def check(self) -> None:
        """Refuse to make a sandbox run while the gate is closed.

        Raises:
            DrainingError: Nothing passes.
        """
        if self.is_closed:
            raise DrainingError(
                "this home is drained: no sandbox starts or wakes",
                hint="`atoll undrain` ends that, on the machine with the sandboxes",
            )

    @contextlib.contextmanager
    def passing(self) -> Iterator[None]:
        """Pass the gate with an operation that makes a sandbox run. A drain waits for its end.

        Raises:
            DrainingError: Nothing passes.
        """
        self.check()
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def wait_until_empty(self) -> None:
        """Return when nothing that passed is still on its way."""
        await self._empty.wait()

    async def close(self, now_s: float) -> None:
        """Let nothing pass from now on. The file is durable when this returns.

        Raises:
            OSError: It could not be written; then everything passes as before.
        """
        before = self._record
        kept = before.sandboxes if before else ()
        since = before.since if before and not before.ending else now_s
        await self._change(DrainRecord(since=since, sandboxes=kept))

    async def remember(self, sandbox_ids: Iterable[str]) -> None:
        """Store that these sandboxes ran. The file is durable when this returns."""
        if self._record is None:
            return
        ids = tuple(dict.fromkeys((*self._record.sandboxes, *sandbox_ids)))
        if ids != self._record.sandboxes:
            await self._change(msgspec.structs.replace(self._record, sandboxes=ids))

    async def open(self) -> tuple[str, ...]:
        """Let everything pass again. Returns the ids of the sandboxes to run again."""
        if self._record is None:
            return ()
        ending = msgspec.structs.replace(self._record, ending=True)
        await self._change(ending)
        return ending.sandboxes

    async def forget(self) -> None:
        """Forget the finished drain, unless another one has begun."""
        if self._record is not None and self._record.ending:
            await asyncio.to_thread(self._file.unlink, missing_ok=True)
            self._record = None

    async def _change(self, record: DrainRecord) -> None:
        """Let the record count and store it; if it cannot be stored, everything is as before."""
        before, self._record = self._record, record
        try:
            await asyncio.to_thread(write_atomically, self._file, msgspec.json.encode(record))
        except BaseException:
            self._record = before
            raise
