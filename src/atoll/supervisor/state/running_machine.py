"""A running machine together with the disk and the link that it runs on."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from atoll.engines import Machine
from atoll.errors import (
    AtollError,
    SandboxCrashedError,
    SandboxNotFoundError,
    UnresponsiveError,
)
from atoll.remedies import UNRESPONSIVE_HINT

if TYPE_CHECKING:
    from atoll.network import Link

_T = TypeVar("_T")
_log = logging.getLogger(__name__)
MARK = "frozen"
RUNS, _MAY_BE_FROZEN = b"r", b"f"
# When a machine dies, calls to it fail a moment before its end is noticed.
_NOTICED_S = 1.0
# A guest that answers nothing anyway is not waited for as long as its engine would.
_UNRESPONSIVE_S = 8.0


def crash_error(sandbox_id: str) -> SandboxCrashedError:
    """The error for a client that waits for a sandbox that crashed."""
    return SandboxCrashedError(
        f"sandbox {sandbox_id} crashed meanwhile",
        hint="use it again, which does what its on_crash says, or roll it back to a snapshot",
        sandbox_id=sandbox_id,
    )


class RunningMachine:
    """A running machine with its link, disk and directory.

    ``leaving`` is set before the machine is ended on purpose, ``killed`` before its sandbox is killed in the
    middle of an operation. ``reason`` says why the machine was ended for something that it did.
    ``limits_changed`` is set when its sandbox gets other limits. ``own_bytes`` counts the supervisor's own
    exchanges with the guest, which are no activity of the guest. ``unresponsive_since`` is the start of its
    agent's silence, in Unix seconds; None if the agent answers.
    """

    def __init__(self, machine: Machine, link: Link, disk: Path, state_dir: Path) -> None:
        self.machine = machine
        self.link = link
        self.disk = disk
        self.state_dir = state_dir
        self._mark = state_dir / MARK
        self.leaving = False
        self.killed = False
        self.reason: str | None = None
        self.limits_changed = asyncio.Event()
        self.own_bytes = 0
        self.unresponsive_since: float | None = None
        self.gone = asyncio.Event()
        self._watch = asyncio.create_task(self._watching())

    async def alive(self, work: Coroutine[Any, Any, _T], sandbox_id: str) -> _T:
        """Do the work, but stop when the machine ends.

        Raises:
            SandboxCrashedError: The machine ended meanwhile, not on purpose.
            SandboxNotFoundError: Its sandbox was killed meanwhile.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._watch}, return_when=asyncio.FIRST_COMPLETED)
            if task.done() and not await self._explains(task.exception()):
                return task.result()
            raise self.lost(sandbox_id)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def lost(self, sandbox_id: str) -> AtollError:
        """The error for a client that waits for a machine that has ended."""
        if self.killed:
            return SandboxNotFoundError(f"sandbox {sandbox_id} has been killed", sandbox_id=sandbox_id)
        return crash_error(sandbox_id)

    async def _explains(self, failure: BaseException | None) -> bool:
        """Whether the machine's end explains a failure: the end may be noticed a moment later."""
        if failure is None or isinstance(failure, ConnectionRefusedError):
            return False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.gone.wait(), _NOTICED_S)
        return self.gone.is_set() and not self.leaving

    async def freeze(self, *, within_s: float | None = None) -> None:
        """Freeze the running machine. ``within_s`` is as in ``Machine.pause``.

        Raises:
            UnresponsiveError: The guest's kernel does not answer, or does not pause its guest.
        """
        # Write the mark first: a supervisor that adopts the machine must know that it may be frozen, whatever
        # its row says.
        self._write_mark(_MAY_BE_FROZEN)
        async with self._bounded("pause"):
            await self.machine.pause(within_s=within_s)

    async def thaw(self) -> None:
        """Undo ``freeze``. A machine that runs keeps running.

        Raises:
            UnresponsiveError: The guest's kernel does not answer.
        """
        async with self._bounded("go on"):
            await self.machine.resume()
        self._write_mark(RUNS)

    @contextlib.asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        bound_s = None if self.unresponsive_since is None else _UNRESPONSIVE_S
        try:
            async with asyncio.timeout(bound_s):
                yield
        except TimeoutError as error:
            if isinstance(error, AtollError):
                raise
            raise UnresponsiveError(
                f"the guest, which answers nothing, did not {what} within {bound_s:g} s",
                hint=UNRESPONSIVE_HINT,
            ) from None

    @property
    def may_be_frozen(self) -> bool:
        """Whether a freeze was started and no thaw has ended since."""
        try:
            return self._mark.read_bytes() != RUNS
        except FileNotFoundError:
            return False

    def _write_mark(self, mark: bytes) -> None:
        # In place: the file has its block from the start, so a full disk cannot keep a guest frozen.
        fd = os.open(self._mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(fd, mark, 0)
        finally:
            os.close(fd)

    def hang_up(self) -> None:
        """End the connections that clients hold into the guest, because nothing answers on them any more."""
        try:
            self.link.end_dialled()
        except OSError as error:
            _log.warning("cannot close the connections into a guest: %s", error)

    def leave(self, *, hang_up: bool = True) -> None:
        """Mark the machine's end as intended from now on. A second call does nothing.

        Args:
            hang_up: False keeps the clients' connections, for a guest that continues in a moment.
        """
        if not self.leaving:
            self.leaving = True
            if hang_up:
                self.hang_up()

    def columns(self) -> dict[str, Any]:
        """The columns of a sandbox's row that describe this machine."""
        return {
            "machine_id": self.machine.machine_id,
            "machine": self.machine.record(),
            "link_id": self.link.link_id,
        }

    def stay(self) -> None:
        """Undo ``leave``."""
        self.leaving = False

    def close(self) -> None:
        """Stop watching the machine."""
        self._watch.cancel()

    async def _watching(self) -> None:
        await self.machine.wait()
        self.gone.set()
