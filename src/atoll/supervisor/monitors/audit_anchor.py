"""Gives the head of the audit log to a command of the operator's, which keeps it where nobody here can change it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import msgspec

from atoll.host import RunProgramError, run_program
from atoll.types import AuditAnchor

_EACH_S = 60.0
_COMMAND_S = 30.0
# The supervisor waits for the last one.
_LAST_S = 10.0
_OUTPUT_BYTES = 1000
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class AuditAnchoring:
    """Runs the command with each new head as a line of JSON on its standard input, once a minute at most.

    A head that the command does not take is not tried again: the next one vouches for it too.

    Args:
        argv: The command and its arguments; empty for none.
        head: Returns the newest head that is on the disk.
    """

    argv: Sequence[str]
    head: Callable[[], AuditAnchor | None]
    _given: int = field(default=0, init=False)
    _fails: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Give heads. Never returns, if there is a command."""
        while self.argv:
            await self.give()
            await asyncio.sleep(_EACH_S)

    async def finish(self) -> None:
        """Give the last head. It takes ten seconds at most."""
        if self.argv:
            await self.give(timeout_s=_LAST_S)

    async def give(self, *, timeout_s: float = _COMMAND_S) -> None:
        """Give the head, unless the command has had it."""
        head = self.head()
        if head is None or head.sequence == self._given:
            return
        why = await self._failure(msgspec.json.encode(head) + b"\n", timeout_s)
        self._given = head.sequence
        if why is None:
            self._fails = False
        elif not self._fails:  # once, not each minute
            self._fails = True
            _log.error("the head of the audit log is not anchored: %s", why)

    async def _failure(self, line: bytes, timeout_s: float) -> str | None:
        try:
            done = await run_program(list(self.argv), stdin=line, timeout_s=timeout_s)
        except (RunProgramError, OSError) as error:
            return str(error)
        if done.exit_code == 0:
            return None
        said = (done.stderr or done.stdout)[-_OUTPUT_BYTES:].decode(errors="replace")
        return f"{self.argv[0]} ended with {done.exit_code}: {said}"
