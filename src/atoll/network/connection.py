"""A connection of a guest to the outside, as the relay knows it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import NamedTuple

from atoll.network.egress import Destination, Through
from atoll.network.flows import Flow
from atoll.network.splice import tune

CONNECT_TIMEOUT_S = 10.0


class Kept(NamedTuple):
    """The rules by which the edge judges a connection, by index: of the policy, and of the team's ceiling."""

    own: tuple[int, ...] = ()
    above: tuple[int, ...] = ()


@dataclass
class Connection:
    """One connection.

    Args:
        connection_id: Tells it from others of its guest.
        flow: How the guest's network stack knows it.
        destination: Where the guest wanted to connect.
        address: Where it leads now; what the guest dialled as long as that is not decided. None if a proxy
            resolves the name.
        kept: The rules by which the edge judges its requests; None if it does not pass through the edge.
        via: The proxy that connects; None if the host itself does.
        is_broken: Whether the edge has given it up, so that it is to be reset.
    """

    connection_id: str
    flow: Flow
    destination: Destination
    address: str | None
    kept: Kept | None = None
    via: Through | None = None
    is_broken: bool = False


async def connect(address: str, port: int) -> socket.socket:
    """Connect from the host. The caller owns the socket.

    Raises:
        OSError: Nothing answers there.
        TimeoutError: Nothing answered in time.
    """
    remote = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
    with contextlib.ExitStack() as failed:
        failed.callback(remote.close)
        tune(remote)
        async with asyncio.timeout(CONNECT_TIMEOUT_S):
            await asyncio.get_running_loop().sock_connect(remote, (address, port))
        failed.pop_all()
    return remote
