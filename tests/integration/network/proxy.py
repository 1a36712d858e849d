"""An upstream proxy of the testbed: HTTP CONNECT and SOCKS5, honest or not."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import Literal

from tests.integration.network.testbed import PUBLIC, serving

from atoll.types import UpstreamProxy

Conduct = Literal["good", "refuse", "hang", "lie", "end", "flood"]
Scheme = Literal["http", "socks5"]
USER, PASSWORD = "ann", "pr0xy-p@ss:w/rd-3141592653"
WRITTEN = "pr0xy-p%40ss%3Aw%2Frd-3141592653"
LOGIN = f"{USER}:{WRITTEN}@"


class Proxy:
    """It takes every name to the testbed's public address, and notes what it was asked, and by whom."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme = scheme
        self.conduct: Conduct = "good"
        self.asked: list[tuple[str, int]] = []
        self.logins: list[tuple[str, str]] = []
        self.port = 0

    def at(
        self, host: str = PUBLIC, *, login: str = f"{USER}:{WRITTEN}@", hosts: tuple[str, ...] = ()
    ) -> UpstreamProxy:
        """The proxy as a policy names it."""
        return UpstreamProxy(url=f"{self.scheme}://{login}{host}:{self.port}", hosts=hosts)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            if self.conduct in ("hang", "lie", "end", "flood"):
                await self._misbehave(reader, writer)
                return
            asking = self._http if self.scheme == "http" else self._socks5
            place = await asking(reader, writer)
            if place is not None:
                await self._join(place, reader, writer)

    async def _misbehave(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if self.conduct == "hang":
            await asyncio.Event().wait()
        if self.conduct == "lie":
            writer.write(b"\x05\x07HTTP/3 banana\r\n\r\n")
            await asyncio.Event().wait()
        while self.conduct == "flood":
            writer.write(b"HTTP/1.1 200 OK\r\n" + b"x: y" * 1024)
            await writer.drain()

    async def _http(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int] | None:
        lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, place, _ = lines[0].split(" ")
        assert method == "CONNECT"
        host, _, port = place.rpartition(":")
        for line in lines[1:]:
            name, _, value = line.partition(": ")
            if name.lower() == "proxy-authorization":
                user, _, password = base64.b64decode(value.removeprefix("Basic ")).decode().partition(":")
                self.logins.append((user, password))
        self.asked.append((host.strip("[]"), int(port)))
        known = not self.logins or self.logins[-1] == (USER, PASSWORD)
        if not known or self.conduct == "refuse":
            writer.write(b"HTTP/1.1 403 no\r\n\r\n" if known else b"HTTP/1.1 407 who\r\n\r\n")
            await writer.drain()
            return None
        writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        return self.asked[-1]

    async def _socks5(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> tuple[str, int] | None:
        _, count = await reader.readexactly(2)
        if 2 in await reader.readexactly(count):
            writer.write(b"\x05\x02")
            _, length = await reader.readexactly(2)
            user = (await reader.readexactly(length)).decode()
            (length,) = await reader.readexactly(1)
            self.logins.append((user, (await reader.readexactly(length)).decode()))
            known = self.logins[-1] == (USER, PASSWORD)
            writer.write(b"\x01\x00" if known else b"\x01\x01")
            if not known:
                await writer.drain()
                return None
        else:
            writer.write(b"\x05\x00")
        _, command, _, kind = await reader.readexactly(4)
        assert command == 1
        if kind == 3:
            (length,) = await reader.readexactly(1)
            host = (await reader.readexactly(length)).decode()
        else:
            host = str(ip_address(await reader.readexactly(4 if kind == 1 else 16)))
        (port,) = struct.unpack(">H", await reader.readexactly(2))
        self.asked.append((host, port))
        refuses = self.conduct == "refuse"
        writer.write(b"\x05\x02" if refuses else b"\x05\x00")
        writer.write(b"\x00\x03\x05bound\x00\x01")
        await writer.drain()
        return None if refuses else (host, port)

    async def _join(
        self, place: tuple[str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        far_reader, far_writer = await asyncio.open_connection(PUBLIC, place[1])
        try:
            back = asyncio.ensure_future(_copy(far_reader, writer))
            try:
                await _copy(reader, far_writer)
                await back
            finally:
                back.cancel()
        finally:
            far_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
        await writer.drain()
    writer.write_eof()


@asynccontextmanager
async def proxying(scheme: Scheme) -> AsyncIterator[Proxy]:
    """Serve on all addresses of the testbed."""
    proxy = Proxy(scheme)
    async with serving(proxy.serve) as proxy.port:
        yield proxy
