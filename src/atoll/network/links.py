"""All links of one home."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import secrets
from collections import deque
from collections.abc import Collection, Coroutine
from pathlib import Path

from atoll.network import namespaces
from atoll.network.link import Link
from atoll.network.namespaces import OuterSockets, Pins
from atoll.network.relay import Given, Relay

SPARES = 2
_SUFFIXES = (".inner", ".outer", ".names")
# A short-term shortage of this process. The link itself exists all the same.
SHORTAGES = (errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS)


class Links:
    """Makes links, keeps a few ready, and finds those of an earlier supervisor.

    Args:
        pins: An existing directory, in this process's mount namespace, where namespaces are pinned.
        relay: Carries the traffic of their guests.
    """

    def __init__(self, pins: Path, relay: Relay) -> None:
        self._directory = pins
        self.relay = relay
        self._links: dict[str, Link] = {}
        self._spares: deque[Link] = deque()
        self._making: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._filling = False
        self._closed = False

    async def start(self) -> None:
        """Start the relay, and begin to keep links ready. Call it when all links of before are adopted."""
        await self._start_relay()
        self.relay.forget_others()
        self._fill()

    async def take(self) -> Link:
        """Return a new link with policy ``"internet"``, from the ready ones or made in a few milliseconds.

        Raises:
            OSError: The kernel refused it, or the relay does not run; nothing is left.
        """
        await self.relay.start()
        link = self._spares.popleft() if self._spares else await self._make()
        self._links[link.link_id] = link
        self._fill()
        return link

    async def carries(self, link_id: str) -> bool:
        """Whether an earlier supervisor's relay carries a link on that nobody has adopted."""
        await self._start_relay()
        return self.relay.carries(link_id)

    async def adopt(self, link_id: str) -> Link | None:
        """Return an earlier supervisor's link; None if it is gone.

        Its policy is ``"internet"``. If the relay has carried the link on, it keeps its earlier policy until
        another is set.

        Raises:
            OSError: This process lacks descriptors or memory to take it over.
        """
        if link_id in self._links:
            return self._links[link_id]
        await self._start_relay()
        pins = self._pins(link_id)
        given = self.relay.give(link_id)
        carried = None if given is None else given.sockets
        try:
            sockets = await asyncio.to_thread(namespaces.reopen, pins, carried)
        except OSError as error:
            for each in carried or ():
                each.close()
            if error.errno in SHORTAGES:
                raise
            return None
        try:
            link = self._link(link_id, sockets, adopted=True, given=given)
        except OSError:
            sockets.close()
            raise
        self._links[link_id] = link
        return link

    def sweep(self, keep: Collection[str]) -> list[str]:
        """Remove the pins of all links except the links in ``keep`` and this process's open links.

        Returns:
            The ids of the removed links, sorted.
        """
        own = {*keep, *self._links, *self._making, *(link.link_id for link in self._spares)}
        found = {path.stem for path in self._directory.iterdir() if path.suffix in _SUFFIXES}
        for link_id in found - own:
            namespaces.remove(self._pins(link_id))
        return sorted(found - own)

    async def aclose(self, *, stay: bool = False) -> None:
        """Close this process's descriptors.

        Pins of taken links stay for the next supervisor; ready ones are removed.

        Args:
            stay: Whether the relay stays too, with the connections of taken links.
        """
        self._closed = True
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for link in self._spares:
            await link.aclose()
        self._spares.clear()
        for link in list(self._links.values()):
            await link.leave(carried=stay)
        self._links.clear()
        await self.relay.aclose(stay=stay)

    async def _start_relay(self) -> None:
        with contextlib.suppress(OSError):  # it has told why, and tries on
            await self.relay.start()

    async def _make(self) -> Link:
        link_id = secrets.token_hex(6)
        pins = self._pins(link_id)
        self._making.add(link_id)
        making = asyncio.ensure_future(asyncio.to_thread(namespaces.make, pins))
        try:
            sockets = await asyncio.shield(making)
        except asyncio.CancelledError:
            self._spawn(_undo(making, pins))
            raise
        finally:
            self._making.discard(link_id)
        try:
            return self._link(link_id, sockets)
        except OSError:
            sockets.close()
            await asyncio.to_thread(namespaces.remove, pins)
            raise

    def _link(
        self, link_id: str, sockets: OuterSockets, *, adopted: bool = False, given: Given | None = None
    ) -> Link:
        return Link(
            link_id,
            self._pins(link_id),
            sockets,
            relay=self.relay,
            closed=self._forget,
            adopted=adopted,
            given=given,
        )

    def _forget(self, link: Link) -> None:
        self._links.pop(link.link_id, None)

    def _fill(self) -> None:
        if not self._filling and not self._closed:
            self._filling = True
            self._spawn(self._fill_spares())

    async def _fill_spares(self) -> None:
        # A failure here comes again when a link is taken, and the caller gets it then.
        with contextlib.suppress(OSError):
            while len(self._spares) < SPARES and not self._closed:
                self._spares.append(await self._make())
        self._filling = False

    def _pins(self, link_id: str) -> Pins:
        return namespaces.pins_of(self._directory, link_id)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _undo(making: asyncio.Future[OuterSockets], pins: Pins) -> None:
    with contextlib.suppress(OSError):
        (await making).close()
        await asyncio.to_thread(namespaces.remove, pins)
