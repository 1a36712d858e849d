"""A row of the escape table: a trick that works while a check is off, and does not while it is on."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from atoll.types import EgressPolicy, Policy, Rule
from tests.security.egress.ground import EVIL, GOOD, OK, OTHER, Ground

_REQUEST = f"GET /ok HTTP/1.1\r\nHost: {GOOD}\r\nConnection: close\r\n\r\n".encode()
SetUp = Callable[[Ground], AbstractContextManager[None] | AbstractAsyncContextManager[None] | None]
Attempt = Callable[[Ground], Awaitable[bool]]


async def plain(ground: Ground) -> bool:
    """Make an ordinary request to the good name."""
    heard = await ground.talk(await ground.address(), ground.port, _REQUEST)
    return heard.startswith(b"HTTP/1.1 200")


async def secured(ground: Ground) -> bool:
    """The same in TLS."""
    heard = await ground.talk_tls(await ground.address(), GOOD, _REQUEST)
    return heard.startswith(b"HTTP/1.1 200")


@dataclass(frozen=True)
class Row:
    """One trick.

    Args:
        trick: Says what is tried.
        attempt: Tries it, and returns whether it has reached its target.
        off: Sets up what lets it through: a policy that allows it, or a check that is disabled.
        on: Sets up what must stop it.
        honest: What passes all the same while it is on.
    """

    trick: str
    attempt: Attempt
    off: SetUp
    on: SetUp
    honest: Attempt | None = None

    async def run(self, ground: Ground) -> None:
        """Try it both ways."""
        ground.expects = True
        async with _set_up(self.off, ground):
            reached = await self.attempt(ground)
        assert reached, "the attempt does not reach its target even where nothing stops it"
        await ground.end()
        await ground.begin()
        async with _set_up(self.on, ground):
            reached = await self.attempt(ground)
            assert not reached, f"it got through; the server has seen {ground.raw()[:2000]!r}"
            ground.target.answer, ground.target.greeting, ground.expects = OK, b"", True
            assert self.honest is None or await self.honest(ground), "what is allowed does not pass either"


@asynccontextmanager
async def _set_up(way: SetUp, ground: Ground) -> AsyncIterator[None]:
    made = way(ground)
    async with contextlib.AsyncExitStack() as stack:
        if isinstance(made, AbstractAsyncContextManager):
            await stack.enter_async_context(made)
        elif made is not None:
            stack.enter_context(made)
        yield


def under(policy: EgressPolicy) -> SetUp:
    """Have this policy."""
    return lambda ground: ground.apply(policy)


def allowing(*rules: dict[str, Any], **more: Any) -> SetUp:
    """Have rules for the good name and the ports of the server, unless they say otherwise."""

    def set_up(ground: Ground) -> None:
        made = [
            Rule(**{"hosts": (GOOD,), "ports": (ground.port, ground.tls_port), **parts}) for parts in rules
        ]
        ground.apply(Policy(rules=tuple(made)), **more)

    return set_up


def unread(ground: Ground) -> None:
    """Let all of the names through, and look into nothing: what the guest sends arrives as it is."""
    names = (GOOD, OTHER, EVIL)
    ground.hurries = True  # what is sent arrives, whether the guest waits or not
    ground.apply(Policy(rules=(Rule(hosts=names),), passthrough=names))
