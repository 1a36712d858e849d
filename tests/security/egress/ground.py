"""Where the tricks are tried: two guests, the real relay and edge, and a server that takes anything.

One child process has it for all rows, which it tries one after the other.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import struct
import subprocess
import traceback
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import dns.message
import dns.rdatatype

from atoll.host import edge_path
from atoll.network import EdgeProgram, Grant, HostSettings, Inspection, Links, Relay, RelayProgram
from atoll.secrets import Authority, home_authority
from atoll.types import EgressDecision, EgressPolicy, Policy
from tests.integration.network import testbed
from tests.integration.network.nameserver import KnownNames, knowing
from tests.integration.network.testbed import PUBLIC, Guest
from tests.integration.network.web import certified

_ROOT = Path(__file__).resolve().parents[3]
GOOD, OTHER, EVIL = "api.example.com", "other.example.com", "evil.example.net"
GATEWAY = "10.254.0.1"
PATIENCE_S = 60.0
ANSWER_S, QUIET_S = 1.0, 0.1
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Target:
    """A server that takes every connection, keeps what came on it, and answers what looks like a request."""

    def __init__(self) -> None:
        self.greeting = b""
        self.answer = OK
        self.echoes = False
        self.came: list[bytearray] = []
        self.writers: set[asyncio.StreamWriter] = set()
        self._news = asyncio.Event()

    def forget(self) -> None:
        """Begin anew; open connections end."""
        for writer in self.writers:
            writer.close()
        self.greeting, self.answer, self.echoes, self.came = b"", OK, False, []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection."""
        mine = bytearray()
        self.came.append(mine)
        self.writers.add(writer)
        answered = 0
        with contextlib.suppress(ConnectionError, ssl.SSLError, asyncio.CancelledError):
            writer.write(self.greeting)
            while data := await reader.read(1 << 16):
                mine += data
                self._news.set()
                if self.echoes:
                    writer.write(data)
                for _ in range(_heads(mine) - answered):
                    answered += 1
                    writer.write(self.answer)
        self.writers.discard(writer)
        writer.close()

    async def until(self, happened: Callable[[], bool]) -> None:
        """Wait until what came is as wanted."""
        async with asyncio.timeout(PATIENCE_S):
            while not happened():
                self._news.clear()
                await self._news.wait()


def _heads(raw: bytearray) -> int:
    """How many heads of requests have ended; none in HTTP/2, which is not answered."""
    return 0 if raw.startswith(b"PRI ") else raw.count(b"\r\n\r\n") + raw.count(b"\n\n")


class Ground:
    """What a row has."""

    def __init__(
        self,
        directory: Path,
        links: Links,
        settings: HostSettings,
        inspection: Inspection,
        names: KnownNames,
        authority: Authority,
    ) -> None:
        self._directory = directory
        self._settings = settings
        self._gullible: Links | None = None
        self._links = links
        self.relay = links.relay
        self.inspection = inspection
        self.names = names
        self.target = Target()
        self.port = self.tls_port = 0
        self.trusted = authority.certificate
        self.hurries = self.expects = False
        self.guest: Guest
        self._neighbours: list[Guest] = []
        self.told: list[EgressDecision] = []
        self.unplugged: list[str] = []

    @asynccontextmanager
    async def gullible(self) -> AsyncIterator[None]:
        """Have a guest whose relay takes no address for closed: what is tried must get through there."""
        if self._gullible is None:
            pins = self._directory / "gullible"
            pins.mkdir()
            program = await asyncio.to_thread(_gullible_relay, self._directory)
            relay = Relay(RelayProgram(lambda: (str(program),), pins / "relay.sock"), self._settings)
            self._gullible = Links(pins, relay)
        kept, self.guest = self.guest, Guest(await self._gullible.take())
        try:
            yield
        finally:
            await self.guest.link.aclose()
            self.guest = kept

    async def aclose(self) -> None:
        """End the relays."""
        for links in (self._links, self._gullible):
            if links is not None:
                await links.aclose()
                links.sweep(keep=())

    async def begin(self) -> None:
        """Make the guest anew."""
        self.guest = Guest(await self._links.take())
        self.forget()

    async def neighbour(self) -> Guest:
        """Make another guest."""
        made = Guest(await self._links.take())
        self._neighbours.append(made)
        return made

    def forget(self) -> None:
        """Forget what happened so far."""
        self.target.forget()
        self.names.names = {GOOD: PUBLIC, OTHER: PUBLIC, EVIL: PUBLIC}
        self.names.asked.clear()
        self.guest.link.guest.relay.call({"op": "forget_names"})
        self.told.clear()
        self.unplugged.clear()
        self.hurries = self.expects = False
        self.settle(testbed.EVERYWHERE)

    def settle(self, foreign: tuple[str, ...]) -> None:
        """Have only these ranges count as another host's."""
        self._settings.foreign = foreign
        self.guest.link.guest.relay.settle()

    async def end(self) -> None:
        """Remove the guests."""
        for guest in (self.guest, *self._neighbours):
            await guest.link.aclose()
        self._neighbours.clear()

    def apply(
        self,
        policy: EgressPolicy,
        *,
        secrets: Mapping[str, str] | None = None,
        bound: Mapping[str, tuple[str, ...]] | None = None,
        canaries: tuple[str, ...] = (),
        guest: Guest | None = None,
    ) -> None:
        """Set the policy of a guest."""
        link = (guest or self.guest).link
        link.guest.follow(self.told.append, self.unplugged.append)
        if isinstance(policy, Policy) and policy.rules:
            grant = Grant(policy, dict(secrets or {}), canaries, dict(bound or {}))
            link.inspect(self.inspection, link.link_id, grant)
        link.set_policy(policy)

    def names_change(self, **names: str) -> None:
        """Let names lead elsewhere from now on; ``good`` and ``evil`` are the names."""
        known = {"good": GOOD, "other": OTHER, "evil": EVIL}
        self.names.names |= {known[key]: address for key, address in names.items()}
        self.guest.link.guest.relay.call({"op": "forget_names"})

    async def ask(
        self, name: str, kind: str = "A", server: str = GATEWAY, *, stream: bool = False
    ) -> dns.message.Message:
        """Ask a nameserver."""
        query = dns.message.make_query(name, kind).to_wire()
        way = socket.SOCK_STREAM if stream else socket.SOCK_DGRAM
        with self.guest.socket(kind=way) as asking:
            await asyncio.to_thread(asking.connect, (server, 53))
            if not stream:
                return dns.message.from_wire(await asyncio.to_thread(_asked, asking, query))
            asking.sendall(struct.pack(">H", len(query)) + query)
            with asking.makefile("rb") as file:
                (length,) = struct.unpack(">H", await asyncio.to_thread(file.read, 2))
                return dns.message.from_wire(await asyncio.to_thread(file.read, length))

    async def address(self, name: str = GOOD) -> str:
        """The address that the guest gets for a name; where it gets none, one that stands for nothing."""
        answer = await self.ask(name)
        found = [data for rrset in answer.answer if rrset.rdtype == dns.rdatatype.A for data in rrset]
        return str(found[0].address) if found else "198.19.255.1"

    async def talk(self, address: str, port: int, *pieces: bytes, guest: Guest | None = None) -> bytes:
        """Connect, send, and return what comes back until the end; nothing where the connection is refused."""
        try:
            with await (guest or self.guest).connect(address, port) as connected:
                return await asyncio.to_thread(self._exchange, connected, pieces)
        except OSError:
            return b""

    async def talk_tls(
        self, address: str, server_name: str | None, *pieces: bytes, alpn: tuple[str, ...] = ()
    ) -> bytes:
        """The same in TLS, to the port for that."""
        try:
            with await self.guest.connect(address, self.tls_port) as plain:
                return await asyncio.to_thread(self._exchange_tls, plain, server_name, pieces, alpn)
        except OSError:
            return b""

    def _exchange_tls(
        self, plain: socket.socket, server_name: str | None, pieces: tuple[bytes, ...], alpn: tuple[str, ...]
    ) -> bytes:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if alpn:
            context.set_alpn_protocols(list(alpn))
        with context.wrap_socket(plain, server_hostname=server_name) as secured:
            return self._exchange(secured, pieces)

    def _exchange(self, connected: socket.socket, pieces: tuple[bytes, ...]) -> bytes:
        """Send, and read until the end. When nothing more comes for a moment, the sending side ends.

        What is not expected to be answered gets a moment only, which may be too short for a busy host.
        """
        heard = b""
        with contextlib.suppress(OSError):
            for piece in pieces:
                connected.sendall(piece)
            if not self.hurries:
                connected.settimeout(PATIENCE_S if self.expects else ANSWER_S)
                with contextlib.suppress(TimeoutError):
                    while data := connected.recv(1 << 16):
                        heard += data
                        connected.settimeout(QUIET_S)
                    return heard
                connected.settimeout(PATIENCE_S)
            connected.shutdown(socket.SHUT_WR)
            while data := connected.recv(1 << 16):
                heard += data
        return heard

    async def hear(self, connected: socket.socket, count: int) -> bytes:
        """What comes, at most so many bytes; nothing at the end, and where nothing can come any more."""
        if self.hurries:
            connected.settimeout(QUIET_S)
        try:
            return await asyncio.to_thread(connected.recv, count)
        except TimeoutError:
            return b""

    async def fence(self) -> None:
        """Return when all that the guest has sent before has arrived wherever it arrives."""
        await self.ask(GOOD)

    def raw(self) -> bytes:
        """All that came at the server."""
        return b"".join(bytes(one) + b"\n\n" for one in self.target.came)


def _asked(asking: socket.socket, query: bytes) -> bytes:
    asking.settimeout(PATIENCE_S)
    asking.send(query)
    return asking.recv(4096)


def _gullible_relay(directory: Path) -> Path:
    """Build a relay that takes no address for closed."""
    source = _ROOT / "policy" / "address.go"
    begins = "func WhyClosed(address netip.Addr) string {\n"
    text = source.read_text()
    assert begins in text
    changed, overlay, program = (
        directory / name for name in ("address.go", "overlay.json", "gullible-relay")
    )
    changed.write_text(text.replace(begins, f'{begins}\treturn ""\n'))
    overlay.write_text(json.dumps({"Replace": {str(source): str(changed)}}))
    argv = ["go", "build", "-overlay", str(overlay), "-o", str(program), "./relay"]
    subprocess.run(argv, cwd=_ROOT, env={**os.environ, "CGO_ENABLED": "0"}, check=True)
    return program


@asynccontextmanager
async def ground(directory: Path) -> AsyncIterator[Ground]:
    """Make it all in the namespaces of this process, as the testbed has them."""
    home, outside = (home_authority(directory / name) for name in ("home.pem", "outside.pem"))
    certificate = certified(outside, [GOOD, OTHER, EVIL], directory / "server.pem")
    config = {"ca_certificate": home.certificate, "ca_key": home.key, "roots": outside.certificate}
    pins = directory / "pins"
    pins.mkdir()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with knowing({}) as (names, nameserver):
        settings = HostSettings(lambda: [nameserver], foreign=testbed.EVERYWHERE)
        links = Links(pins, testbed.relay_at(pins, settings))
        program = EdgeProgram(lambda: (str(edge_path()),), lambda: config, directory / "edge.sock")
        inspection = Inspection(program, links.relay)
        made = Ground(directory, links, settings, inspection, names, home)
        servers = []
        try:
            for tls in (None, context):
                listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
                servers.append(await asyncio.start_server(made.target.serve, sock=listener, ssl=tls))
            await links.start()
            made.port, made.tls_port = (server.sockets[0].getsockname()[1] for server in servers)
            yield made
        finally:
            for server in servers:
                server.close()
            made.target.forget()
            await inspection.aclose()
            await made.aclose()
            await asyncio.sleep(0.05)


Work = Callable[[Ground, str], Awaitable[None]]


class Yard:
    """The child process that has the ground, and does there what a text stands for.

    Args:
        directory: Its own directory.
        work: Does what a text says, and fails when something is wrong.
    """

    def __init__(self, directory: Path, work: Work) -> None:
        self._ours, theirs = socket.socketpair()
        with warnings.catch_warnings():
            # Of a fork beside other threads, none of which the child needs.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._child = os.fork()
        if not self._child:
            self._ours.close()
            status = 1
            try:
                testbed.enter()
                asyncio.run(_serve(directory, work, theirs))
                status = 0
            except BaseException:
                theirs.sendall(_framed(traceback.format_exc()))
            finally:
                os._exit(status)
        theirs.close()

    def do(self, text: str) -> str:
        """Have it done. Returns the traceback of a failure, or nothing."""
        self._ours.sendall(_framed(text))
        return self._reply()

    def close(self) -> str:
        """End the process. Returns what it left behind, as text."""
        self._ours.shutdown(socket.SHUT_WR)
        left = self._reply()
        self._ours.close()
        _, status = os.waitpid(self._child, 0)
        return left or (f"the child ended with {status}" if status else "")

    def _reply(self) -> str:
        head = self._read(4)
        return "the child is gone" if len(head) < 4 else self._read(struct.unpack(">I", head)[0]).decode()

    def _read(self, count: int) -> bytes:
        data = b""
        while len(data) < count and (more := self._ours.recv(count - len(data))):
            data += more
        return data


def _framed(text: str) -> bytes:
    data = text.encode(errors="replace")
    return struct.pack(">I", len(data)) + data


async def _serve(directory: Path, work: Work, commands: socket.socket) -> None:
    before = len(os.listdir("/proc/self/fd"))
    reader, writer = await asyncio.open_connection(sock=commands)
    async with ground(directory) as made:
        while command := await reader.read(4):
            text = (await reader.readexactly(struct.unpack(">I", command)[0])).decode()
            try:
                async with asyncio.timeout(PATIENCE_S):
                    await made.begin()
                    try:
                        await work(made, text)
                    finally:
                        await made.end()
                told = ""
            except BaseException:
                told = traceback.format_exc()
            writer.write(_framed(told))
    left = os.listdir("/proc/self/fd")
    # The event loop has three descriptors of its own.
    leaked = "" if len(left) <= before + 3 else f"descriptors before: {before}, now: {left}"
    writer.write(_framed(leaked))
    await writer.drain()
