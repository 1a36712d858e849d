"""The sandbox that tools act on, its copies and its ports; and the tools that change them."""

from __future__ import annotations

import contextlib
from typing import Annotated, ClassVar

from msgspec import Meta

from atoll.errors import InvalidSpecError, NotFoundError, SandboxNotFoundError
from atoll.sdk import AsyncForward, AsyncSandbox
from atoll.tools._async.tries import tried
from atoll.tools.arguments import Line, Named, Seconds
from atoll.tools.schema import Offer
from atoll.types import SnapshotInfo

_MOST_TRIES = 20
_MOST_FORWARDS = 64


class AsyncPlace:
    """The sandbox that tools act on, its copies and its ports.

    Args:
        sandbox: The sandbox. It stays the caller's.
    """

    def __init__(self, sandbox: AsyncSandbox) -> None:
        self.sandbox = sandbox
        self._copies: dict[str, AsyncSandbox] = {}
        self._forwards: dict[int, AsyncForward] = {}

    async def fork(self, count: int) -> list[AsyncSandbox]:
        """Make copies, which ``keep`` and ``close`` kill."""
        copies = await self.sandbox.fork(count)
        self._copies.update({copy.id: copy for copy in copies})
        return copies

    async def keep(self, winner: str) -> SnapshotInfo:
        """Let the sandbox go on from one copy, kill the others, and return a snapshot of its old state.

        Raises:
            NotFoundError: It is no copy.
        """
        kept = self._copies.get(winner)
        if kept is None:
            known = ", ".join(self._copies) or "none: call try_in_forks first"
            raise NotFoundError(f"{winner} is no copy", hint=f"there are {known}")
        before = await self.sandbox.promote(kept)
        self._copies.pop(winner, kept).close()
        await self._kill_copies()
        return before

    async def forward(self, port: int) -> AsyncForward:
        """Forward a port of this host to one inside, until ``close``."""
        if port not in self._forwards:
            if len(self._forwards) >= _MOST_FORWARDS:
                raise InvalidSpecError(
                    f"{_MOST_FORWARDS} ports are forwarded already", hint="use one that is there"
                )
            forward = self.sandbox.ports.forward(port)
            await forward.__aenter__()
            self._forwards[port] = forward
        return self._forwards[port]

    async def close(self) -> None:
        """End the forwards and kill the copies that were not kept. Idempotent."""
        while self._forwards:
            _, forward = self._forwards.popitem()
            await forward.__aexit__(None, None, None)
        await self._kill_copies()

    async def _kill_copies(self) -> None:
        while self._copies:
            _, copy = self._copies.popitem()
            with contextlib.suppress(SandboxNotFoundError):
                await copy.kill()


class AsyncPlaceTools:
    """Tries several ways, and reaches ports.

    Args:
        place: The place to change.
    """

    OFFERS: ClassVar[tuple[Offer, ...]] = (
        Offer("try_in_forks", "Try commands in forks"),
        Offer("keep_fork", "Keep a fork", destroys=True),
        Offer("url", "Address of a port"),
    )

    def __init__(self, place: AsyncPlace) -> None:
        self._place = place

    async def try_in_forks(
        self,
        commands: Annotated[
            list[Line], Meta(description="One command for each copy.", min_length=1, max_length=_MOST_TRIES)
        ],
        timeout_s: Seconds = 300.0,
    ) -> str:
        """Try several ways at once: make a copy of the sandbox for each command and run them side by side.

        The copies start from the same memory and disk and cannot disturb each other or the original. Returns
        each copy's id and result. Then `keep_fork` the best one.
        """
        return await tried(await self._place.fork(len(commands)), commands, timeout_s)

    async def keep_fork(self, winner: Named) -> str:
        """Keep one copy of `try_in_forks`: the sandbox goes on from its memory, programs and disk.

        A snapshot keeps the sandbox's old state. The other copies are killed.
        """
        before = await self._place.keep(winner)
        return f"the sandbox goes on from {winner}; `rollback` to {before.snapshot_id} undoes it"

    async def url(
        self,
        port: Annotated[int, Meta(description="The port that a server inside listens on.", ge=1, le=65535)],
    ) -> str:
        """Return an address on the user's machine that leads to a port inside, for a browser."""
        return (await self._place.forward(port)).url
