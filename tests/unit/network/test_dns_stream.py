from __future__ import annotations

import asyncio
import contextlib
import socket
import struct

import pytest

from atoll.network import dnsmessage
from atoll.network.forwarder import NameForwarder

_QUESTIONS = 500
_NONSENSE = struct.pack(">H", 12) + bytes(12)


async def _most_in_a_turn(answered: list[bytes]) -> int:
    with contextlib.ExitStack() as opened:
        datagrams = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        datagrams.bind(("127.0.0.1", 0))
        datagrams.setblocking(False)
        listener = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        listener.setblocking(False)
        guest = opened.enter_context(socket.create_connection(listener.getsockname()))
        guest.sendall(_NONSENSE * _QUESTIONS)
        names = NameForwarder(datagrams, listener, list)
        try:
            most = seen = 0
            async with asyncio.timeout(120):
                while seen < _QUESTIONS:
                    await asyncio.sleep(0)
                    most, seen = max(most, len(answered) - seen), len(answered)
            return most
        finally:
            await names.aclose()


def test_a_guest_that_floods_its_nameserver_leaves_turns_to_everybody_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answered: list[bytes] = []
    failure = dnsmessage.failure

    def counted(query: bytes, response_code: int) -> bytes | None:
        answered.append(query)
        return failure(query, response_code)

    monkeypatch.setattr(dnsmessage, "failure", counted)
    assert asyncio.run(_most_in_a_turn(answered)) <= 2
