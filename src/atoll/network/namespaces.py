"""A link's two namespaces, and the sockets that are made in the outer one.

The machine runs in the inner one. The outer one is the guest's gateway.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from atoll.host import in_netns, in_spare_thread, new_netns, unpin
from atoll.network import filters, flows, netlink, shaping, uplink, veth
from atoll.network.addresses import DNS_PORT, GATEWAY_ADDRESS, RELAY_PORT
from atoll.network.netlink import NetlinkSocket
from atoll.network.uplink import OpenUplink

_BACKLOG = 1024
_READY_SOCKETS = 4

RelaySockets = tuple[socket.socket, socket.socket, socket.socket]
"""The sockets that the relay serves: the listener for TCP, and the socket and listener for DNS."""


@dataclass(frozen=True)
class Pins:
    """The two files at which a link's namespaces are pinned."""

    inner: Path
    outer: Path

    @property
    def names(self) -> Path:
        """The file with the names that the guest knows. It lives as long as the namespaces."""
        return self.inner.with_suffix(".names")


@dataclass(frozen=True)
class OuterSockets:
    """The sockets that a supervisor has in an outer namespace, and whether that was cut when they were made."""

    relay: socket.socket
    dns: socket.socket
    dns_stream: socket.socket
    counters: NetlinkSocket
    diag: NetlinkSocket
    ready: list[socket.socket]
    is_cut: bool = False

    def close(self) -> None:
        """Close them all."""
        self.counters.close()
        self.diag.close()
        for opened in (self.relay, self.dns, self.dns_stream, *self.ready):
            opened.close()


def make(pins: Pins) -> OuterSockets:
    """Make both namespaces, the interfaces that join them and the sockets of the outer one, in about 5 ms.

    Raises:
        OSError: The kernel refused it; nothing is left.
    """
    return in_spare_thread(lambda: _make(pins))


def _make(pins: Pins) -> OuterSockets:
    with contextlib.ExitStack() as failed:
        for pin in (pins.inner, pins.outer):
            new_netns(pin)
            failed.callback(unpin, pin)
        inner_fd = os.open(pins.inner, os.O_RDONLY | os.O_CLOEXEC)
        try:
            sockets = in_netns(pins.outer, lambda: _furnish(inner_fd))
        finally:
            os.close(inner_fd)
        failed.callback(sockets.close)
        in_netns(pins.inner, _furnish_inner)
        veth.await_up(sockets.counters)
        failed.pop_all()
    return sockets


def reopen(pins: Pins, carried: RelaySockets | None = None) -> OuterSockets:
    """Make a supervisor's sockets again in an outer namespace that still exists.

    Args:
        carried: The relay's sockets, if it carries the link on. The result owns them.

    Raises:
        OSError: There is no such link, or another supervisor has it.
    """
    in_netns(pins.inner, lambda: None)
    return in_netns(pins.outer, lambda: _open_sockets_again(carried))


def dial_sockets(pins: Pins) -> list[socket.socket]:
    """Make a few unconnected, non-blocking TCP sockets in the outer namespace.

    Raises:
        OSError: There is no such namespace, or no descriptor is left.
    """
    return in_netns(pins.outer, _dial_sockets)


def address_guest(pins: Pins) -> None:
    """Set the address and route of the guest's interface again: a machine removes them when it starts.

    Raises:
        OSError: There is no such namespace.
    """
    in_netns(pins.inner, veth.address_guest)


def open_uplink(pins: Pins) -> OpenUplink:
    """Take the guest's interface away from the host, see ``uplink``.

    Raises:
        OSError: The kernel refused it, or there is no such namespace.
    """
    return in_netns(pins.inner, uplink.open_uplink)


def shape(pins: Pins, rate_bytes_s: int | None) -> None:
    """Limit the rate in each direction. None removes the limit.

    Raises:
        OSError: The kernel cannot do that, or there is no such link.
    """
    for pin in (pins.inner, pins.outer):
        in_netns(pin, lambda: shaping.shape(rate_bytes_s))


def dialled_flows(pins: Pins) -> list[flows.Flow]:
    """Return the connections that were dialled into the guest; none where the kernel cannot list them.

    Raises:
        OSError: There is no such namespace.
    """
    return in_netns(pins.outer, _dialled_flows)


def open_connections(pins: Pins) -> int:
    """Return how many connections the outer namespace has with the guest, in either direction.

    Raises:
        OSError: There is no such namespace, or the kernel cannot list them.
    """
    return in_netns(pins.outer, flows.open_connections)


def challenger(pins: Pins) -> socket.socket:
    """Make the socket for ``flows.challenge`` in the outer namespace.

    Raises:
        OSError: There is no such namespace.
    """
    return in_netns(pins.outer, flows.challenger)


def cut(pins: Pins) -> None:
    """Let no packet pass the outer namespace, in any direction, until ``mend``. Idempotent.

    Raises:
        OSError: There is no such namespace, or the kernel refused it.
    """
    in_netns(pins.outer, filters.cut)


def mend(pins: Pins) -> None:
    """Undo ``cut``. Idempotent.

    Raises:
        OSError: There is no such namespace, or the kernel refused it.
    """
    in_netns(pins.outer, filters.mend)


def pins_of(directory: Path, link_id: str) -> Pins:
    """Return where the namespaces of a link are pinned."""
    return Pins(directory / f"{link_id}.inner", directory / f"{link_id}.outer")


def remove(pins: Pins) -> None:
    """Unpin both namespaces, so that each ends with its last socket. Idempotent."""
    unpin(pins.outer)
    unpin(pins.inner)
    pins.names.unlink(missing_ok=True)


def _furnish(inner_fd: int) -> OuterSockets:
    veth.lay(inner_fd)
    filters.filter_outer()
    return _open_sockets()


def _furnish_inner() -> None:
    filters.filter_inner()
    veth.address_guest()


def _open_sockets(carried: RelaySockets | None = None) -> OuterSockets:
    with contextlib.ExitStack() as failed:
        relay, dns, dns_stream = carried or _open_carried(failed)
        counters = failed.enter_context(NetlinkSocket(netlink.ROUTE))
        diag = failed.enter_context(NetlinkSocket(netlink.SOCK_DIAG))
        ready = _dial_sockets()
        failed.pop_all()
    return OuterSockets(relay, dns, dns_stream, counters, diag, ready)


def _open_carried(failed: contextlib.ExitStack) -> RelaySockets:
    relay = failed.enter_context(_listener(RELAY_PORT))
    dns_stream = failed.enter_context(_listener(DNS_PORT))
    dns = failed.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK))
    dns.bind((GATEWAY_ADDRESS, DNS_PORT))
    return relay, dns, dns_stream


def _open_sockets_again(carried: RelaySockets | None) -> OuterSockets:
    is_cut = filters.is_cut()
    return dataclasses.replace(_open_sockets(carried), is_cut=is_cut)


def _listener(port: int) -> socket.socket:
    listener = socket.create_server((GATEWAY_ADDRESS, port), backlog=_BACKLOG)
    listener.setblocking(False)
    return listener


def _dial_sockets() -> list[socket.socket]:
    with contextlib.ExitStack() as failed:
        made = []
        for _ in range(_READY_SOCKETS):
            ready = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
            made.append(failed.enter_context(ready))
            ready.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failed.pop_all()
    return made


def _dialled_flows() -> list[flows.Flow]:
    try:
        return flows.dialled_flows()
    except OSError:
        return []
