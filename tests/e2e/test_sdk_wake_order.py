"""Many clients use one sleeping sandbox at once."""

from __future__ import annotations

import socket
from contextlib import ExitStack
from pathlib import Path

from tests.waiting import BOUND_S

from atoll import Sandbox
from atoll.host import Home
from atoll.protocol import DIAL_LIMIT_BYTES, DialRequest, encode

COUNT = 50
# It answers each client that asks with how many came before it. What only looks whether it listens does not.
SERVER = """
import socket
listener = socket.create_server(("0.0.0.0", 7000), backlog=128)
open("/home/user/ready", "w").close()
clients = []
while True:
    client = listener.accept()[0]
    if client.recv(1):
        clients.append(client)
        client.sendall(b"%d\\n" % len(clients))
"""


def test_fifty_clients_wake_it_once_and_each_is_served_once(module_home: Path) -> None:
    with Sandbox.create() as sandbox, ExitStack() as ends:
        sandbox.files.write("server.py", SERVER)
        sandbox.processes.start(["python3", "server.py"], stream=False)
        sandbox.ports.wait(7000)
        with sandbox.ports.dial(7000) as connection:
            connection.sendall(b"?")
            before = int(connection.recv(100))
        sandbox.suspend()
        clients = [
            ends.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)) for _ in range(COUNT)
        ]
        for client in clients:
            client.settimeout(BOUND_S)
            client.connect(str(Home(module_home).dial_socket))
            client.send(encode(DialRequest(sandbox=sandbox.id, port=7000)))
        connections = []
        for client in clients:
            _, fds, _, _ = socket.recv_fds(client, DIAL_LIMIT_BYTES, 1)
            connections.append(ends.enter_context(socket.socket(fileno=fds[0])))
            connections[-1].settimeout(BOUND_S)
            connections[-1].sendall(b"?")
        seen = [int(connection.recv(100)) - before for connection in connections]
        # In the order in which they came, but a busy guest may accept two neighbours the other way round.
        assert sorted(seen) == list(range(1, COUNT + 1))
        assert "".join(sandbox.logs()).count("sandbox woken") == 1
