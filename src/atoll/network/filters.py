"""The packet filter between a guest and its gateway, the outer namespace.

In the outer namespace every TCP connection and every DNS question of the guest ends at the relay's ports. The
filter lets nothing else in. Connections that are dialled into the guest are not tracked, and only packets to
the gateway's own address belong to them. So a packet of an unknown connection, such as a restored guest's,
reaches a port without that connection. The answer is a reset.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

from atoll.network import nftables
from atoll.network.addresses import DNS_PORT, GATEWAY_ADDRESS, RELAY_PORT
from atoll.network.nftables import (
    ACCEPT,
    DROP,
    ESTABLISHED,
    FORWARD,
    INPUT,
    NEW,
    OUTPUT,
    PREROUTING,
    UNTRACKED,
    Chain,
    accept,
    destination,
    no_first_packet,
    port,
    protocol,
    redirect,
    reset,
    source_port,
    tracked,
    untrack,
)

TABLE = "atoll"
CUT_TABLE = "atoll-unplugged"

_TCP = socket.IPPROTO_TCP
# Before connection tracking, so that a guest that floods costs little.
_FIRST = -400
_UDP = socket.IPPROTO_UDP


def outer_chains() -> list[Chain]:
    """Return the IPv4 table of an outer namespace."""
    return [
        Chain(
            "raw_in",
            "filter",
            PREROUTING,
            -300,
            ACCEPT,
            [[*protocol(_TCP), *destination(GATEWAY_ADDRESS), *port(DNS_PORT, other=True), *untrack()]],
        ),
        Chain(
            "raw_out",
            "filter",
            OUTPUT,
            -300,
            ACCEPT,
            [
                [*protocol(_TCP), *source_port(DNS_PORT), *accept()],
                [*protocol(_TCP), *source_port(RELAY_PORT), *accept()],
                [*protocol(_TCP), *untrack()],
            ],
        ),
        Chain(
            "to_relay",
            "nat",
            PREROUTING,
            -100,
            ACCEPT,
            [
                [*protocol(_TCP), *port(DNS_PORT), *redirect(DNS_PORT)],
                [*protocol(_UDP), *port(DNS_PORT), *redirect(DNS_PORT)],
                [*protocol(_TCP), *redirect(RELAY_PORT)],
            ],
        ),
        Chain(
            "input",
            "filter",
            INPUT,
            0,
            DROP,
            [
                [*protocol(_UDP), *port(DNS_PORT), *accept()],
                [*tracked(NEW | ESTABLISHED), *protocol(_TCP), *port(DNS_PORT), *accept()],
                [*tracked(NEW | ESTABLISHED), *protocol(_TCP), *port(RELAY_PORT), *accept()],
                [*tracked(UNTRACKED), *protocol(_TCP), *no_first_packet(), *accept()],
                [*tracked(UNTRACKED), *protocol(_TCP), *reset()],
            ],
        ),
        Chain("forward", "filter", FORWARD, 0, DROP),
    ]


def closed_chains() -> list[Chain]:
    """Return a table that lets nothing pass in any direction."""
    hooks = {"input": INPUT, "forward": FORWARD, "output": OUTPUT}
    return [Chain(name, "filter", hook, 0, DROP) for name, hook in hooks.items()]


def cut_chains() -> list[Chain]:
    """Return a table that drops each packet before any other rule sees it, in every direction."""
    hooks = {"in": PREROUTING, "input": INPUT, "forward": FORWARD, "out": OUTPUT}
    return [Chain(name, "filter", hook, _FIRST, DROP) for name, hook in hooks.items()]


def cut() -> None:
    """Let nothing pass in the calling thread's network namespace, an outer one. Idempotent.

    IPv6 never passes there. The cut outlives this process.

    Raises:
        OSError: The kernel refused it.
    """
    if not is_cut():
        nftables.add_table(socket.AF_INET, CUT_TABLE, cut_chains())


def mend() -> None:
    """Undo ``cut`` in the calling thread's network namespace. Idempotent.

    Raises:
        OSError: The kernel refused it.
    """
    with contextlib.suppress(FileNotFoundError):
        nftables.delete_table(socket.AF_INET, CUT_TABLE)


def is_cut() -> bool:
    """Whether the calling thread's network namespace is cut.

    Raises:
        OSError: The kernel does not say.
    """
    return nftables.has_table(socket.AF_INET, CUT_TABLE)


def filter_outer() -> None:
    """Install the filter of an outer namespace in the calling thread's network namespace.

    Raises:
        OSError: The kernel refused it.
    """
    nftables.add_table(socket.AF_INET, TABLE, outer_chains())
    if Path("/proc/net/if_inet6").exists():
        nftables.add_table(socket.AF_INET6, TABLE, closed_chains())


def filter_inner() -> None:
    """Silence the host's own network stack in the calling thread's namespace.

    The guest has its own stack on the same interface. The host's stack must not answer for it, above all not
    with resets while the guest is suspended.

    Raises:
        OSError: The kernel refused it.
    """
    nftables.add_table(socket.AF_INET, TABLE, closed_chains())
