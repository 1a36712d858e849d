from __future__ import annotations

import asyncio
import resource

from tests.integration.network.testbed import NetworkTestbed, serving

# See relay/guest/guest.go.
CONNECTIONS_AT_ONCE = 512
_MORE = 200


async def test_whoever_opens_hundreds_of_connections_at_once_gets_all_of_them(
    testbed: NetworkTestbed,
) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    loop = asyncio.get_running_loop()

    async def ask() -> bytes:
        with guest.socket() as one:
            one.setblocking(False)
            await loop.sock_connect(one, (testbed.public, port))
            await loop.sock_sendall(one, b"hello")
            answer = await loop.sock_recv(one, 100)
            asked.append(1)
            while len(asked) < CONNECTIONS_AT_ONCE + _MORE:  # noqa: ASYNC110 - all are open at once
                await asyncio.sleep(0.05)
            return answer

    asked: list[int] = []
    async with serving() as port, testbed.guest() as guest:
        answers = await asyncio.gather(*(ask() for _ in range(CONNECTIONS_AT_ONCE + _MORE)))
    assert set(answers) == {b"hello"}
