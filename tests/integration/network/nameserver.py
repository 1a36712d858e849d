"""A nameserver of the testbed that knows a few names, and notes what it is asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import cast

import dns.message
import dns.rcode
import dns.rdatatype
import dns.rrset


class KnownNames(asyncio.DatagramProtocol):
    """Answers with the addresses of ``names``; other names do not exist. ``texts`` are TXT records."""

    def __init__(self, names: Mapping[str, str]) -> None:
        self.names = dict(names)
        self.texts: dict[str, str] = {}
        self.asked: list[tuple[str, str]] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, address: tuple[str, int]) -> None:
        query = dns.message.from_wire(data)
        question = query.question[0]
        name, kind = question.name.to_text(omit_final_dot=True), dns.rdatatype.to_text(question.rdtype)
        self.asked.append((name, kind))
        reply = dns.message.make_response(query)
        if name not in self.names:
            reply.set_rcode(dns.rcode.NXDOMAIN)
        elif kind == ("AAAA" if ":" in self.names[name] else "A"):
            reply.answer = [dns.rrset.from_text(question.name, 60, "IN", kind, self.names[name])]
        elif kind == "TXT" and name in self.texts:
            reply.answer = [dns.rrset.from_text(question.name, 60, "IN", kind, self.texts[name])]
        self.transport.sendto(reply.to_wire(), address)


@asynccontextmanager
async def knowing(names: Mapping[str, str]) -> AsyncIterator[tuple[KnownNames, tuple[str, int]]]:
    """Serve these names on a port of the testbed's loopback."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(
        lambda: KnownNames(names), local_addr=("127.0.0.1", 0)
    )
    try:
        yield server, transport.get_extra_info("sockname")
    finally:
        transport.close()
        await asyncio.sleep(0)
