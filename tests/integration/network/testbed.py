"""The network's testbed: a test's own namespaces, and the hosts in them.

The testbed's network namespace stands for the host: its loopback has a public address and private ones.
A guest is a plain socket in a link's inner namespace, on the kernel's own network stack.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import socket
import struct
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from tests.forked import in_child

from atoll.host import in_netns, relay_path
from atoll.network import HostSettings, Link, Links, Relay, RelayProgram, filters, netlink, nftables
from atoll.network.host_settings import Nameservers
from atoll.network.netlink import ACK, CREATE, Message, NetlinkSocket, attribute

MIB = 1 << 20
PUBLIC = "198.51.100.7"
PRIVATE = ("10.9.9.9", "172.20.0.1", "192.168.7.7", "169.254.169.254", "100.100.100.200", "168.63.129.16")
PATIENCE_S = 90.0


EVERYWHERE = ("0.0.0.0/0", "::/0")
"""All addresses of the testbed belong to it, and a guest is to reach the public ones."""


_NEW_USER, _NEW_NET, _NEW_MOUNT, _PRIVATE_MOUNTS = 0x10000000, 0x40000000, 0x00020000, 1 << 18 | 1 << 14


Socket = socket.socket
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Guest:
    """A program on the guest's side of a link."""

    def __init__(self, link: Link) -> None:
        self.link = link
        in_netns(link.netns, lambda: nftables.delete_table(socket.AF_INET, filters.TABLE))

    def socket(self, family: int = socket.AF_INET, kind: int = socket.SOCK_STREAM, proto: int = 0) -> Socket:
        """Return a socket that is patient."""
        made = in_netns(self.link.netns, lambda: socket.socket(family, kind, proto))
        made.settimeout(PATIENCE_S)
        return made

    async def connect(self, address: str, port: int) -> Socket:
        """Connect to the outside."""
        made = self.socket()
        try:
            await asyncio.to_thread(made.connect, (address, port))
        except BaseException:
            made.close()
            raise
        return made

    async def is_reset(self, address: str, port: int) -> bool:
        """Say whether a connection to there is reset before a byte comes."""
        try:
            with await self.connect(address, port) as made:
                return await reset_comes(made)
        except ConnectionError:
            return True

    def listen(self, port: int) -> Socket:
        """Listen inside."""
        listener = in_netns(self.link.netns, lambda: socket.create_server(("0.0.0.0", port)))
        listener.settimeout(PATIENCE_S)
        return listener

    def mute(self) -> None:
        """Let the guest neither hear nor say anything, like one that is suspended."""
        self._in(lambda: nftables.add_table(socket.AF_INET, "mute", filters.closed_chains()))

    def unmute(self) -> None:
        """Undo ``mute``."""
        self._in(lambda: nftables.delete_table(socket.AF_INET, "mute"))

    def _in(self, work: Callable[[], None]) -> None:
        in_netns(self.link.netns, work)


class NetworkTestbed:
    """What a test has: a directory for pins, and links of it."""

    def __init__(self, pins: Path) -> None:
        self.pins = pins
        self.public = PUBLIC
        self.private = PRIVATE

    def links_of(self, nameservers: Nameservers = list, *, proxy_timeout_s: float = PATIENCE_S) -> Links:
        """Make links that nobody ends."""
        return Links(self.pins, relay_at(self.pins, HostSettings(nameservers, proxy_timeout_s, EVERYWHERE)))

    @asynccontextmanager
    async def links(
        self, nameservers: Nameservers = list, *, proxy_timeout_s: float = PATIENCE_S
    ) -> AsyncIterator[Links]:
        """Run links without prestarted machines; all of them are gone at the end."""
        links = self.links_of(nameservers, proxy_timeout_s=proxy_timeout_s)
        try:
            yield links
        finally:
            await links.aclose()
            links.sweep(keep=())

    @asynccontextmanager
    async def guest(self, nameservers: Nameservers = list) -> AsyncIterator[Guest]:
        """Run one link with a guest on it."""
        async with self.links(nameservers) as links:
            yield Guest(await links.take())


def relay_at(directory: Path, settings: HostSettings) -> Relay:
    """Make the relay of a home in a directory."""
    return Relay(RelayProgram(lambda: (str(relay_path()),), directory / "relay.sock"), settings)


async def eventually(is_so: object) -> None:
    """Wait until something is so."""
    assert callable(is_so)
    for _ in range(400):
        if is_so():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("it did not happen")


async def reset_comes(connected: socket.socket) -> bool:
    """Wait for the end of a connection and say whether it is a reset."""
    try:
        received = await asyncio.to_thread(connected.recv, 1)
    except ConnectionResetError:
        return True
    assert received == b""
    return False


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(MIB):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()
    except ConnectionError:
        writer.close()


@asynccontextmanager
async def serving(handler: Handler = echo, host: str = "0.0.0.0") -> AsyncIterator[int]:
    """Serve on all addresses of the testbed; tasks of open connections end with it."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await handler(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            writer.close()
            tasks.discard(task)

    server = await asyncio.start_server(handle, host, 0)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def run(test: Callable[..., Awaitable[None]], arguments: dict[str, object]) -> str:
    """Run an asynchronous test in a child process in the testbed; return the traceback of a failure."""
    return in_child(lambda: _run(test, arguments))


def _run(test: Callable[..., Awaitable[None]], arguments: dict[str, object]) -> None:
    enter()
    leaks: list[str] = []
    sys.unraisablehook = lambda event: leaks.append(f"{event.exc_value!r} in {event.object!r}")
    before = _held()
    asyncio.run(_bounded(test, arguments))
    gc.collect()
    assert not leaks, leaks
    after = _held()
    assert after[0] == before[0], (before, after)
    # What others have had mounted on the host may be gone.
    assert after[1] <= before[1], (before, after)


async def _bounded(test: Callable[..., Awaitable[None]], arguments: dict[str, object]) -> None:
    async with asyncio.timeout(240):
        await test(**arguments)


def _held() -> tuple[int, set[str]]:
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return len(os.listdir("/proc/self/fd")), {line.split()[4] for line in mounts}


def enter() -> None:
    """Make this process, which has one thread, root of a testbed's namespaces."""
    uid, gid = os.getuid(), os.getgid()
    libc = ctypes.CDLL(None, use_errno=True)
    flags = _NEW_NET | _NEW_MOUNT | (_NEW_USER if uid else 0)
    if libc.unshare(flags):
        raise OSError(ctypes.get_errno(), "no namespaces")
    if uid:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"0 {uid} 1")
        Path("/proc/self/gid_map").write_text(f"0 {gid} 1")
    if libc.mount(b"none", b"/", None, _PRIVATE_MOUNTS, None):
        raise OSError(ctypes.get_errno(), "mounts stay shared")
    with NetlinkSocket(netlink.ROUTE) as kernel:
        kernel.change([_loopback_up(), *(_loopback_address(address) for address in (PUBLIC, *PRIVATE))])


def _loopback_up() -> Message:
    return Message(16, ACK, struct.pack("=BxHiII", socket.AF_UNSPEC, 0, 1, 1, 1))


def _loopback_address(address: str) -> Message:
    body = struct.pack("=BBBBI", socket.AF_INET, 32, 0, 0, 1)
    return Message(20, ACK | CREATE, body + attribute(2, socket.inet_aton(address)))
