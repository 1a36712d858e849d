"""Packet filters, set directly in the kernel: a table is one atomic batch of netlink messages.

An expression is a small machine step on register 1. A rule is the list of its steps, and ends at the first
step that does not match.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from atoll.network import netlink
from atoll.network.netlink import ACK, APPEND, CREATE, Message, NetlinkSocket, attribute, nested, text

Expression = bytes
Rule = Sequence[Expression]

PREROUTING, INPUT, FORWARD, OUTPUT = 0, 1, 2, 3
DROP, ACCEPT = 0, 1
NEW, ESTABLISHED, UNTRACKED = 0x08, 0x02, 0x40
SYN, ACKNOWLEDGED = 0x02, 0x10

_BATCH_BEGIN, _BATCH_END = 0x10, 0x11
_SUBSYSTEM = 10
_NEW_TABLE, _GET_TABLE, _DELETE_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 1, 2, 3, 6
_REGISTER = struct.pack(">I", 1)
_NETWORK_HEADER, _TRANSPORT_HEADER = 1, 2
_EQUAL, _NOT_EQUAL = 0, 1


@dataclass(frozen=True)
class Chain:
    """Rules at one point of a packet's way.

    ``kind`` is ``filter`` or ``nat``; ``policy`` is for packets that no rule has decided.
    """

    name: str
    kind: str
    hook: int
    priority: int
    policy: int
    rules: Sequence[Rule] = field(default=())


def add_table(family: int, name: str, chains: Sequence[Chain]) -> None:
    """Add a table with its chains to the calling thread's network namespace, all or nothing.

    Raises:
        OSError: The kernel refused it.
    """
    with NetlinkSocket(netlink.NETFILTER) as kernel:
        kernel.change(table_messages(family, name, chains))


def delete_table(family: int, name: str) -> None:
    """Remove a table from the calling thread's network namespace.

    Raises:
        OSError: There is none, or the kernel refused it.
    """
    with NetlinkSocket(netlink.NETFILTER) as kernel:
        kernel.change(_batch([_message(family, _DELETE_TABLE, 0, text(1, name))]))


def has_table(family: int, name: str) -> bool:
    """Whether the calling thread's network namespace has this table.

    Raises:
        OSError: The kernel does not say.
    """
    body = struct.pack(">BBH", family, 0, 0) + text(1, name)
    with NetlinkSocket(netlink.NETFILTER) as kernel:
        try:
            kernel.ask(Message(_SUBSYSTEM << 8 | _GET_TABLE, 0, body))
        except FileNotFoundError:
            return False
    return True


def table_messages(family: int, name: str, chains: Sequence[Chain]) -> list[Message]:
    """Return the batch that adds a table."""
    messages = [_message(family, _NEW_TABLE, CREATE, text(1, name))]
    messages += [_message(family, _NEW_CHAIN, CREATE, _chain(name, chain)) for chain in chains]
    for chain in chains:
        for rule in chain.rules:
            body = text(1, name) + text(2, chain.name) + nested(4, *rule)
            messages.append(_message(family, _NEW_RULE, CREATE | APPEND, body))
    return _batch(messages)


def protocol(number: int) -> list[Expression]:
    """Match the transport protocol, such as ``socket.IPPROTO_TCP``."""
    return [_expression("meta", _u32(2, 16), _u32(1, 1)), _compare(_EQUAL, struct.pack("B", number))]


def destination(address: str) -> list[Expression]:
    """Match an IPv4 packet's destination address."""
    return [_payload(_NETWORK_HEADER, 16, 4), _compare(_EQUAL, socket.inet_aton(address))]


def source_port(number: int) -> list[Expression]:
    """Match the source port of a TCP or UDP packet; put ``protocol`` before it."""
    return [_payload(_TRANSPORT_HEADER, 0, 2), _compare(_EQUAL, struct.pack(">H", number))]


def port(number: int, *, other: bool = False) -> list[Expression]:
    """Match the destination port of a TCP or UDP packet; with ``other``, any other port.

    Put ``protocol`` before it.
    """
    return [
        _payload(_TRANSPORT_HEADER, 2, 2),
        _compare(_NOT_EQUAL if other else _EQUAL, struct.pack(">H", number)),
    ]


def tracked(states: int) -> list[Expression]:
    """Match the packet's state in connection tracking: any of NEW, ESTABLISHED, UNTRACKED."""
    mask = struct.pack("=I", states)
    return [_expression("ct", _u32(2, 0), _u32(1, 1)), _masked(mask), _compare(_NOT_EQUAL, bytes(4))]


def no_first_packet() -> list[Expression]:
    """Match a TCP packet that does not open a new connection."""
    return [
        _payload(_TRANSPORT_HEADER, 13, 1),
        _masked(struct.pack("B", SYN | ACKNOWLEDGED)),
        _compare(_NOT_EQUAL, struct.pack("B", SYN)),
    ]


def accept() -> list[Expression]:
    """Let the packet pass."""
    return [_expression("immediate", _u32(1, 0), nested(2, nested(2, _u32(1, ACCEPT))))]


def untrack() -> list[Expression]:
    """Exclude the packet from connection tracking."""
    return [_expression("notrack")]


def redirect(to_port: int) -> list[Expression]:
    """Send the packet's connection to this port of this namespace."""
    value = nested(2, attribute(1, struct.pack(">H", to_port)))
    return [
        _expression("immediate", attribute(1, _REGISTER), value),
        _expression("redir", attribute(1, _REGISTER), _u32(3, 2)),
    ]


def reset() -> list[Expression]:
    """Answer a TCP packet with a reset."""
    return [_expression("reject", _u32(1, 1), attribute(2, bytes(1)))]


def _chain(table: str, chain: Chain) -> bytes:
    hook = nested(4, _u32(1, chain.hook), attribute(2, struct.pack(">i", chain.priority)))
    return text(1, table) + text(3, chain.name) + hook + _u32(5, chain.policy) + text(7, chain.kind)


def _message(family: int, kind: int, flags: int, body: bytes) -> Message:
    return Message(_SUBSYSTEM << 8 | kind, ACK | flags, struct.pack(">BBH", family, 0, 0) + body)


def _batch(messages: Sequence[Message]) -> list[Message]:
    rim = struct.pack(">BBH", socket.AF_UNSPEC, 0, _SUBSYSTEM)
    return [Message(_BATCH_BEGIN, 0, rim), *messages, Message(_BATCH_END, 0, rim)]


def _u32(kind: int, value: int) -> bytes:
    return attribute(kind, struct.pack(">I", value))


def _expression(name: str, *data: bytes) -> Expression:
    return nested(1, text(1, name), *([nested(2, *data)] if data else []))


def _payload(header: int, offset: int, length: int) -> Expression:
    return _expression("payload", _u32(1, 1), _u32(2, header), _u32(3, offset), _u32(4, length))


def _compare(how: int, value: bytes) -> Expression:
    return _expression("cmp", _u32(1, 1), _u32(2, how), nested(3, attribute(1, value)))


def _masked(mask: bytes) -> Expression:
    size = len(mask)
    return _expression(
        "bitwise",
        _u32(1, 1),
        _u32(2, 1),
        _u32(3, size),
        nested(4, attribute(1, mask)),
        nested(5, attribute(1, bytes(size))),
    )
