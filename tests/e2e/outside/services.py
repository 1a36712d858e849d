"""Runs inside a sandbox that stands for the outside: servers of gRPC, WebSocket, IMAP, SMTP and Postgres."""

from __future__ import annotations

import asyncio
import json
import ssl
import struct
import sys
from pathlib import Path

import grpc
import websockets


async def main(certificate: str, pem: bytes, ports: dict[str, int]) -> None:
    calls = grpc.aio.server()
    calls.add_generic_rpc_handlers((Counting(),))
    credentials = grpc.ssl_server_credentials([(pem, pem)])
    assert calls.add_secure_port(f"0.0.0.0:{ports['grpc']}", credentials) == ports["grpc"]
    await calls.start()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    async with websockets.serve(echo, "0.0.0.0", ports["socket"], ssl=context):
        await asyncio.start_server(postgres, "0.0.0.0", ports["postgres"])
        await asyncio.start_server(imap, "0.0.0.0", ports["imap"], ssl=context)
        await asyncio.start_server(smtp, "0.0.0.0", ports["smtp"])
        await asyncio.Event().wait()


class Counting(grpc.GenericRpcHandler):
    """``/test.Counting/Double`` answers each number of a stream as it comes, and ends with a trailer."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.stream_stream_rpc_method_handler(double) if details.method.endswith("/Double") else None


async def double(numbers, context):  # noqa: ANN001, ANN201
    count = 0
    async for number in numbers:
        count += 1
        yield str(2 * int(number)).encode()
    context.set_trailing_metadata((("counted", str(count)),))


async def echo(connection) -> None:  # noqa: ANN001
    async for message in connection:
        await connection.send(message)


async def imap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As much of IMAP as reading one mail takes. The server speaks first."""
    writer.write(b"* OK [CAPABILITY IMAP4rev1] ready\r\n")
    more = {
        b"SELECT": b"* 1 EXISTS\r\n",
        b"FETCH": b"* 1 FETCH (RFC822 {5}\r\nhello)\r\n",
        b"CAPABILITY": b"* CAPABILITY IMAP4rev1\r\n",
    }
    try:
        while line := await reader.readline():
            tag, command = line.split()[:2]
            writer.write(more.get(command, b"") + tag + b" OK done\r\n")
    finally:
        writer.close()


async def smtp(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(b"220 ready\r\n")
    while await reader.readline():
        writer.write(b"250 done\r\n")
    writer.close()


async def postgres(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """As much of Postgres as one query takes. The client speaks first, and asks for TLS, which is declined."""
    try:
        while True:
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            if struct.unpack(">I", body[:4])[0] >> 16 == 3:
                break
            writer.write(b"N")
        writer.write(message(b"R", struct.pack(">I", 0)) + message(b"Z", b"I"))
        while await reader.readexactly(1) == b"Q":
            (length,) = struct.unpack(">I", await reader.readexactly(4))
            await reader.readexactly(length - 4)
            column = b"answer\0" + struct.pack(">IHIHIH", 0, 0, 25, 65535, 0xFFFFFFFF, 0)
            writer.write(message(b"T", struct.pack(">H", 1) + column))
            writer.write(message(b"D", struct.pack(">HI", 1, 2) + b"42"))
            writer.write(message(b"C", b"SELECT 1\0") + message(b"Z", b"I"))
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


def message(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack(">I", len(body) + 4) + body


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], Path(sys.argv[1]).read_bytes(), json.loads(sys.argv[2])))
