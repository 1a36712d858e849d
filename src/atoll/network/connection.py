"""A connection of a guest to the outside, as the relay knows it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass
from typing import NamedTuple

from atoll.network.egress import Destination, Egress, Through
from atoll.network.flows import Flow
from atoll.network.handshake import ProxyError
from atoll.network.splice import tune
from atoll.policy import Verdict, sandbox_ref

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


async def connect(
    egress: Egress, connection: Connection, address: str | None, verdict: Verdict
) -> socket.socket:
    """Connect to where a connection leads: to another sandbox, through a proxy, or from the host.

    The caller owns the socket.

    Args:
        egress: The guest's, which is told why a sandbox or a proxy refuses.
        connection: The connection.
        address: What its name has been resolved to; None if a proxy resolves it.
        verdict: Why it may be made.

    Raises:
        OSError: Nothing answers there, or the sandbox or the proxy refuses.
        TimeoutError: Nothing answered in time.
    """
    destination = connection.destination
    if (ref := sandbox_ref(destination.name or "")) is not None:
        return await _to_sandbox(egress, ref, destination, verdict)
    if connection.via is None:
        return await _from_host(address or "", destination.port)
    try:
        return await egress.connect_through(connection.via, destination)
    except ProxyError as error:
        why = "the upstream proxy does not connect"
        _note(egress, destination, verdict, f"{why}: {error}")
        # The guest may read this, and need not know where the proxy is.
        raise ConnectionError(why) from None


async def _to_sandbox(egress: Egress, ref: str, destination: Destination, verdict: Verdict) -> socket.socket:
    try:
        sandbox = await egress.reach(ref, destination.port)
    except OSError as error:
        why = "the sandbox is not reached"
        _note(egress, destination, verdict, f"{why}: {error}")
        # The guest may read this, and need not know of another one's state.
        raise ConnectionError(why) from None
    tune(sandbox)
    return sandbox


def _note(egress: Egress, destination: Destination, verdict: Verdict, reason: str) -> None:
    egress.note(Verdict("deny", verdict.rule, reason=reason), destination.host, destination.port, "tcp")


async def _from_host(address: str, port: int) -> socket.socket:
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
