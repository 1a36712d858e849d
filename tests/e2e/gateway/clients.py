"""What clients of the gateway need: headers, tokens, E2B's own sandbox and a WebSocket."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from e2b import ConnectionConfig
from e2b import Sandbox as RemoteSandbox
from packaging.version import Version
from tests.e2e.listening import until_listening
from tests.e2e.server import Server
from wsproto import ConnectionType, WSConnection
from wsproto.events import Event, Request

from atoll import Sandbox
from atoll.server.tokens import Tokens, read_secret

BOUND_S = 60.0
PORT = 8000
AGENT = 49983


def start_port_server(box: Sandbox, *certificate: str) -> None:
    box.files.write("/tmp/port_server.py", (Path(__file__).parents[1] / "port_server.py").read_bytes())
    box.processes.start(["python3", "/tmp/port_server.py", str(PORT), *certificate])
    until_listening(box, PORT)


def token_of(sandbox_id: str, home: Path, kind: str = "access") -> str:
    tokens = Tokens(read_secret(home / "server"))
    return str(getattr(tokens, kind)(sandbox_id))


def headers_of(sandbox_id: str, port: int) -> dict[str, str]:
    return {"e2b-sandbox-id": sandbox_id, "e2b-sandbox-port": str(port)}


def remote(server: Server, box: Sandbox, home: Path) -> RemoteSandbox:
    """The E2B SDK's own sandbox, as its `create` makes one."""
    token = token_of(box.id, home)
    headers = headers_of(box.id, AGENT) | {"X-Access-Token": token}
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("E2B_DEBUG", raising=False)
        return RemoteSandbox(
            sandbox_id=box.id,
            sandbox_domain=None,
            envd_version=Version("0.6.13"),
            envd_access_token=token,
            traffic_access_token=None,
            connection_config=ConnectionConfig(
                api_key=server.key,
                api_url=server.url,
                sandbox_url=server.url,
                extra_sandbox_headers=headers,
            ),
        )


class Socket:
    """A WebSocket client, one message at a time."""

    def __init__(self, server: Server, box: Sandbox, path: str) -> None:
        self.raw = socket.create_connection(("127.0.0.1", server.port), timeout=BOUND_S)
        self.ws = WSConnection(ConnectionType.CLIENT)
        extra = [(name.encode(), value.encode()) for name, value in headers_of(box.id, PORT).items()]
        self.send(
            Request(host="localhost", target=path, subprotocols=["first", "second"], extra_headers=extra)
        )

    def send(self, event: Event) -> None:
        self.raw.sendall(self.ws.send(event))

    def next(self) -> Event:
        while True:
            for event in self.ws.events():
                return event
            self.ws.receive_data(self.raw.recv(65536) or None)
