"""Cuts a link off, so that nothing passes in either direction, and joins it again."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

from atoll.network import edge
from atoll.network.edge import Pins
from atoll.network.egress import Egress
from atoll.network.flows import Dialled, Flow
from atoll.network.relay import Relay


class Plug:
    """The plug of one link.

    ``was_cut`` says that an earlier supervisor, or somebody in its place, has cut the link. ``is_open`` says that
    this process still has the link.

    Args:
        pins: Where the link's namespaces are.
        egress: Decides what the guest reaches.
        relay: Has the guest's connections to the outside.
        dialled: The connections into the guest.
        part: Drops what the edge's process has of the guest's connections.
        join: Undoes ``part``, and tells the guest that these connections are gone.
        was_cut: Whether the link was found cut.
    """

    def __init__(
        self,
        pins: Pins,
        egress: Egress,
        relay: Relay,
        dialled: Dialled,
        *,
        part: Callable[[], None],
        join: Callable[[list[Flow]], Coroutine[Any, Any, None]],
        was_cut: bool,
    ) -> None:
        self.was_cut = was_cut
        self.is_open = True
        self._pins = pins
        self._egress = egress
        self._relay = relay
        self._dialled = dialled
        self._part = part
        self._join = join
        self._parted: list[Flow] = []

    def cut(self) -> None:
        """Let nothing pass any more in either direction, and reset every connection. Idempotent.

        When it returns, some milliseconds later, the last byte has passed. The cut outlives this process.

        Raises:
            OSError: The kernel refused it, or the link's namespaces are gone. The relay passes nothing.
        """
        self._egress.cut(True)
        self._parted += self._relay.flows()
        self._relay.reset()  # first, so that the guest still gets the resets
        self._part()  # the edge may hold what it has not sent on yet
        edge.cut(self._pins)
        self._parted += edge.dialled_flows(self._pins)
        with contextlib.suppress(OSError):  # nothing passes on those that the kernel does not end
            self._dialled.end()

    async def mend(self) -> None:
        """Undo ``cut``: the policy decides again. The guest learns that its connections are gone.

        Raises:
            OSError: The kernel refused it, or the link's namespaces are gone.
        """
        await asyncio.to_thread(edge.mend, self._pins)
        self._egress.cut(False)
        self.was_cut = False
        parted, self._parted = self._parted, []
        await self._join(parted)
