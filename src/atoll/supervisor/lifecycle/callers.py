"""Tracks the clients that wait for new sandboxes: a client that leaves early leaves none behind."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TypeVar

from atoll.errors import AtollError, InvalidSpecError, SandboxNotFoundError, StateError
from atoll.supervisor.lifecycle.kill import Kills
from atoll.supervisor.state.inventory import Inventory
from atoll.supervisor.state.tasks import Tasks

_T = TypeVar("_T")
_KEEP_S = 60.0
_MOST = 1000
_TOKEN_CHARACTERS = 64
_log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Caller:
    """Represents a client that asked for sandboxes, and may leave before it has them.

    Args:
        token: The name that the client chose, so that other connections can refer to it.
        made_by: The client's name for itself; None if it gives no name.

    Attributes:
        made: The ids of the sandboxes made for it.
        is_served: Whether it still waited when the sandboxes were ready, so that it owns them.
        over: Set when it got no sandboxes, or none of them is left.
    """

    token: str | None = None
    made_by: str | None = None
    made: Sequence[str] = field(default_factory=lambda: (), init=False)
    is_served: bool = field(default=False, init=False)
    over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _left: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    @property
    def has_left(self) -> bool:
        """Whether the client has left."""
        return self._left.is_set()

    def leave(self) -> None:
        """Note that the client has left."""
        self._left.set()

    def check(self) -> None:
        """Stop here if the client has left: a new sandbox would only be killed.

        Raises:
            StateError: The client has left.
        """
        if self.has_left:
            raise StateError("the client that asked for it disconnected")

    async def unless_left(self, work: asyncio.Task[_T]) -> _T:
        """The result of a task that others may wait for too: it continues when this caller leaves.

        Raises:
            StateError: The caller left meanwhile.
        """
        left = asyncio.ensure_future(self._left.wait())
        try:
            await asyncio.wait({work, left}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            left.cancel()
        self.check()
        return await asyncio.shield(work)


@dataclass(eq=False, repr=False)
class Callers:
    """Kills sandboxes whose callers left before they got them.

    Args:
        now_s: A clock in seconds that never goes back.
    """

    inventory: Inventory
    kills: Kills
    tasks: Tasks
    now_s: Callable[[], float]
    _waiting: dict[str, Caller] = field(default_factory=dict, init=False)
    # For a minute after an answer, its caller can still say that it was interrupted while reading it.
    _answered: OrderedDict[str, tuple[Caller, float]] = field(default_factory=OrderedDict, init=False)

    @asynccontextmanager
    async def waiting(self, caller: Caller) -> AsyncIterator[None]:
        """Make a caller's sandboxes inside the block, and set ``caller.made`` at its end.

        Run the block in a task that goes on when the caller leaves: its end then kills the sandboxes.

        Raises:
            InvalidSpecError: The caller's token is too long.
            StateError: The caller left meanwhile.
        """
        self._begin(caller)
        try:
            yield
            if caller.has_left:
                await self._kill(caller.made)
                caller.check()
            caller.is_served = True
        finally:
            if not caller.is_served:
                caller.over.set()
            if caller.token is not None:
                self._waiting.pop(caller.token, None)
                self._remember(caller.token, caller)

    def leave(self, caller: Caller) -> None:
        """Note that the caller has left without its sandboxes. Idempotent."""
        if caller.has_left:
            return
        caller.leave()
        if caller.is_served:
            self.tasks.spawn(self._undo(caller))

    async def undo(self, token: str) -> None:
        """Call ``leave`` for the caller with this token, now or soon, and wait until its sandboxes are gone.

        Raises:
            InvalidSpecError: The token is too long.
        """
        _check(token)
        known = self._waiting.get(token) or self._answered.get(token, (None, 0.0))[0]
        if known is None:
            known = Caller()
            known.over.set()
            self._remember(token, known)
        self.leave(known)
        await known.over.wait()

    async def _undo(self, caller: Caller) -> None:
        try:
            await self._kill(caller.made)
        finally:
            caller.over.set()

    async def _kill(self, made: Sequence[str]) -> None:
        for sandbox_id in made:
            try:
                await self.kills.kill(self.inventory.sandbox(sandbox_id))
            except SandboxNotFoundError:
                continue
            except (AtollError, OSError) as error:
                _log.warning("cannot kill sandbox %s, whose client disconnected: %s", sandbox_id, error)

    def _begin(self, caller: Caller) -> None:
        if caller.token is None:
            return
        _check(caller.token)
        before = self._answered.pop(caller.token, None)
        if before is not None and before[0].has_left:
            caller.leave()  # the message that it left arrived before its request
        self._waiting[caller.token] = caller

    def _remember(self, token: str, caller: Caller) -> None:
        now_s = self.now_s()
        self._answered[token] = caller, now_s
        while len(self._answered) > _MOST or next(iter(self._answered.values()))[1] < now_s - _KEEP_S:
            self._answered.popitem(last=False)


def _check(token: str) -> None:
    if len(token) > _TOKEN_CHARACTERS:
        raise InvalidSpecError(f"the request's token has more than {_TOKEN_CHARACTERS} characters")
