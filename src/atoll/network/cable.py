"""The cable of a link: its namespaces, and the interfaces at both ends."""

from __future__ import annotations

import asyncio
from pathlib import Path

from atoll.host import to_the_end
from atoll.network import namespaces, veth
from atoll.network.namespaces import Pins
from atoll.network.netlink import NetlinkSocket
from atoll.network.uplink import OpenUplink


class Cable:
    """The two namespaces of a link and the interfaces between them.

    Args:
        pins: Where the namespaces are pinned.
        counters: Asks the outer namespace about its interface.
    """

    def __init__(self, pins: Pins, counters: NetlinkSocket) -> None:
        self._pins = pins
        self._counters = counters
        self._rate_mib_s: float | None = None

    @property
    def netns(self) -> Path:
        """The network namespace that the sandbox's machine runs in."""
        return self._pins.inner

    async def set_rate(self, mib_s: float | None) -> None:
        """Limit the guest's rate in each direction, in MiB per second. None means no limit.

        Raises:
            OSError: The kernel cannot do that, or the link's namespaces are gone.
        """
        if mib_s != self._rate_mib_s:
            await asyncio.to_thread(
                namespaces.shape, self._pins, None if mib_s is None else int(mib_s * (1 << 20))
            )
            self._rate_mib_s = mib_s

    async def prepare(self) -> None:
        """Make the link ready for another machine, because a machine removes the interface's address.

        Call it when no machine runs on the link. A link that was just taken is ready.

        Raises:
            OSError: The link's namespaces are gone.
        """
        await asyncio.to_thread(namespaces.address_guest, self._pins)

    async def open_uplink(self) -> OpenUplink:
        """Take the guest's interface for a machine that does not take it by itself.

        The caller owns the socket. Call ``prepare`` if no machine gets it after all.

        Raises:
            OSError: The link's namespaces are gone.
        """
        # Finish even if cancelled: a thread that went on could remove the address after ``prepare`` has set
        # it for another machine.
        return await to_the_end(asyncio.to_thread(namespaces.open_uplink, self._pins))

    def traffic(self) -> tuple[int, int]:
        """Return the bytes that the guest has received and sent since the link was made.

        Raises:
            OSError: The link is closed.
        """
        return veth.traffic(self._counters)

    def payload_bytes(self) -> int:
        """Return the bytes that the guest has received and sent beyond the headers of packets, as a measure.

        Raises:
            OSError: The link is closed.
        """
        return veth.payload_bytes(self._counters)

    def received_payload_bytes(self) -> int:
        """Return the bytes that the guest has received beyond the headers of packets, as a measure.

        Raises:
            OSError: The link is closed.
        """
        return veth.received_payload_bytes(self._counters)
