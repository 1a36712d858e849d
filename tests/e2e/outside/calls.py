"""Runs inside a sandbox: clients of gRPC and WebSocket. ``calls.py grpc|socket HOST:PORT``."""

from __future__ import annotations

import queue
import sys

import grpc
from websockets.exceptions import WebSocketException
from websockets.sync.client import connect


def call(place: str) -> str:
    """Double a number three times: what came is what is sent next, so nothing may wait for more to come."""
    numbers: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    numbers.put(b"1")
    came: list[bytes] = []
    with grpc.secure_channel(place, grpc.ssl_channel_credentials()) as channel:
        answers = channel.stream_stream("/test.Counting/Double")(iter(numbers.get, None), timeout=60)
        for answer in answers:
            came.append(answer)
            numbers.put(answer if len(came) < 3 else None)
        trailer = dict(answers.trailing_metadata())["counted"]
    return f"{b' '.join(came).decode()}, {trailer} counted"


def talk(place: str) -> str:
    with connect(f"wss://{place}") as connection:
        connection.send("first")
        first = connection.recv()
        connection.send(b"\0" * 100_000)
        return f"{first} {len(connection.recv())}"


try:
    print(call(sys.argv[2]) if sys.argv[1] == "grpc" else talk(sys.argv[2]))
except grpc.RpcError as error:
    print(error.code().name, error.details())
except (OSError, WebSocketException) as error:
    print(type(error).__name__, error)
