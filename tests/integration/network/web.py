"""A web server of the testbed with a certificate of its own authority, and a client inside the guest."""

from __future__ import annotations

import asyncio
import http.client
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import NameOID
from tests.integration.network.testbed import Guest

from atoll.secrets import Authority


def certified(authority: Authority, names: list[str], path: Path) -> Path:
    """A file with a certificate for these names and its key."""
    signer = load_pem_private_key(authority.key.encode(), None)
    issuer = x509.load_pem_x509_certificate(authority.certificate.encode())
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])]))
        .issuer_name(issuer.subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=30))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name) for name in names]), critical=False)
        .sign(signer, SHA256())
    )
    text = made.public_bytes(Encoding.PEM) + key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    )
    path.write_bytes(text)
    return path


class Web:
    """A server that answers each request with what it received, as JSON, and keeps connections open."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self.answer: Callable[[dict[str, Any]], bytes] = lambda seen: json.dumps(seen).encode()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                method, path, _ = line.decode().split(" ", 2)
                headers: dict[str, str] = {}
                while (header := (await reader.readline()).decode().strip()) != "":
                    name, _, value = header.partition(":")
                    headers[name.lower()] = value.strip()
                body = await reader.readexactly(int(headers.get("content-length", "0")))
                seen = {"method": method, "path": path, "headers": headers, "body": body.decode()}
                self.seen.append(seen)
                answer = self.answer(seen)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n" % len(answer) + answer)
                await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
            return
        finally:
            writer.close()


@asynccontextmanager
async def web(certificate: Path | None = None) -> AsyncIterator[tuple[Web, int]]:
    """Serve on all addresses of the testbed, with TLS if there is a certificate."""
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
    served = Web()
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await served.serve(reader, writer)
        except asyncio.CancelledError:
            return
        finally:
            tasks.discard(task)

    server = await asyncio.start_server(handle, "0.0.0.0", 0, ssl=context)
    try:
        yield served, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0.05)


class Browser:
    """A client inside the guest, on one connection."""

    def __init__(self, connected: socket.socket, host: str, port: int) -> None:
        self._client = http.client.HTTPConnection(host, port)
        self._client.sock = connected

    async def fetch(
        self, method: str, path: str, *, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body of an answer."""

        def work() -> tuple[int, bytes]:
            self._client.request(method, path, body, dict(headers or {}))
            answer = self._client.getresponse()
            return answer.status, answer.read()

        return await asyncio.to_thread(work)

    def close(self) -> None:
        """End the connection."""
        self._client.close()


@asynccontextmanager
async def browsing(
    guest: Guest, address: str, name: str, port: int, trusted: str | None = None
) -> AsyncIterator[Browser]:
    """A connection of the guest, with TLS if it trusts a certificate."""
    connected = await guest.connect(address, port)
    try:
        if trusted is not None:
            context = ssl.create_default_context(cadata=trusted)
            wrapped = context.wrap_socket(connected, server_hostname=name, do_handshake_on_connect=False)
            connected = wrapped
            await asyncio.to_thread(wrapped.do_handshake)
        browser = Browser(connected, name, port)
        yield browser
    finally:
        connected.close()
