"""A guest agent that answers what it must not: every call ends soon, with an error of ours, in bounded memory."""

from __future__ import annotations

import contextlib
import itertools
import socket
import threading
import tracemalloc
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest
from tests.unit.sdk.fakes import SANDBOX_ID, FakeSupervisor

from atoll import Process, Sandbox, Terminal
from atoll.errors import AtollError
from atoll.types import TerminalSize

MIB = 1 << 20


def head(*lines: str, status: str = "200 OK") -> bytes:
    return "\r\n".join([f"HTTP/1.1 {status}", *lines, "", ""]).encode()


def whole(body: bytes, status: str = "200 OK") -> list[bytes]:
    return [head(f"content-length: {len(body)}", status=status), body]


def chunked(*pieces: bytes) -> Iterator[bytes]:
    yield head("transfer-encoding: chunked")
    for piece in pieces:
        yield b"%x\r\n%b\r\n" % (len(piece), piece)
    yield b"0\r\n\r\n"


def endless(piece: bytes) -> Iterator[bytes]:
    yield head("transfer-encoding: chunked")
    yield from itertools.repeat(b"%x\r\n%b\r\n" % (len(piece), piece) * (65536 // len(piece) + 1))


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    return kind + len(payload).to_bytes(4, "big") + payload


PID = frame(b"s", b'{"pid": 7}')
END = frame(b"x", b'{"exit_code": 0}')
DEEP = b"[" * 200_000 + b"]" * 200_000

ANSWERS: dict[str, Callable[[], Iterable[bytes]]] = {
    "nothing": list,
    "no HTTP": lambda: [b"SSH-2.0-evil\r\n" * 10],
    "a line without an end": lambda: itertools.repeat(b"x" * 65536),
    "headers without an end": lambda: itertools.chain(
        [b"HTTP/1.1 200 OK\r\n"], (b"h%d: v\r\n" % n for n in itertools.count())
    ),
    "half a body": lambda: [head("content-length: 1000"), b"{"],
    "two lengths": lambda: [head("content-length: 5", "content-length: 7"), b"hello"],
    "a negative length": lambda: [head("content-length: -1"), b"hello"],
    "a chunk of a bad size": lambda: [head("transfer-encoding: chunked"), b"-5\r\nhello\r\n"],
    "a chunk of an endless size": lambda: itertools.chain(
        [head("transfer-encoding: chunked")], itertools.repeat(b"f" * 65536)
    ),
    "no JSON": lambda: whole(b"\xff\xfe<html>"),
    "another value": lambda: whole(b'{"file": 7, "files": {}, "processes": "x", "time_ns": []}'),
    "numbers out of all bounds": lambda: whole(
        b'{"file": {"size_bytes": -1}, "processes": [{"pid": 1e400}]}'
    ),
    "brackets in brackets": lambda: whole(DEEP),
    "a fault that is no fault": lambda: whole(DEEP, "500 x"),
    "a fault without an end": lambda: itertools.chain(
        [head("transfer-encoding: chunked", status="400 x")],
        itertools.repeat(b"10000\r\n" + b"x" * 65536 + b"\r\n"),
    ),
    "an answer without an end": lambda: endless(b"x" * 65536),
    "a redirection": lambda: [head("location: http://127.0.0.1/", "content-length: 0", status="302 Found")],
    "no content": lambda: [head(status="204 No Content")],
    "a frame too long": lambda: chunked(PID, b"o\xff\xff\xff\xff"),
    "a frame of no kind": lambda: chunked(PID, frame(b"?", b"x")),
    "a process of no number": lambda: chunked(frame(b"s", b'{"pid": -7}'), END),
    "a process of a huge number": lambda: chunked(frame(b"s", b'{"pid": 99999999999999999999}'), END),
    "an end that is none": lambda: chunked(PID, frame(b"x", b'{"exit_code": "0"}')),
    "an exit code that is none": lambda: chunked(PID, frame(b"x", b'{"exit_code": 123456789012}')),
    "a start in the middle of a program": lambda: chunked(
        PID, PID, frame(b"w", b"7"), frame(b"x", DEEP[:65536])
    ),
    "a stream without its end": lambda: chunked(PID, frame(b"o", b"hello")),
}


def followed(program: Process | Terminal) -> object:
    with program:
        return program.wait()


def watched(sandbox: Sandbox) -> object:
    with sandbox.files.watch("/") as watch:
        return watch.next()


CALLS: dict[str, Callable[[Sandbox, Path], object]] = {
    "exec": lambda sandbox, _: sandbox.exec(["true"]),
    "exec with input": lambda sandbox, _: sandbox.exec(["cat"], stdin=b"hello"),
    "start": lambda sandbox, _: followed(sandbox.processes.start(["true"], stream=True)),
    "attach": lambda sandbox, _: followed(sandbox.processes.attach(7)),
    "pty": lambda sandbox, _: followed(sandbox.processes.pty(size=TerminalSize())),
    "processes": lambda sandbox, _: sandbox.processes.list(),
    "read": lambda sandbox, _: sandbox.files.read("/f", max_bytes=MIB),
    "write": lambda sandbox, _: sandbox.files.write("/f", b"x" * 20_000),
    "stat": lambda sandbox, _: sandbox.files.stat("/f"),
    "list": lambda sandbox, _: sandbox.files.list("/"),
    "watch": lambda sandbox, _: watched(sandbox),
    "download": lambda sandbox, path: sandbox.files.download("/d", path / "d", max_bytes=MIB),
    "upload": lambda sandbox, path: sandbox.files.upload(path, "/d"),
}


# What cannot be told from an honest answer: a file's bytes, and a success that says nothing.
ANY_SUCCESS = {"read", "upload"}


class EvilAgent:
    """Gives one answer to whatever is asked, and hangs up."""

    def __init__(self, pieces: Callable[[], Iterable[bytes]]) -> None:
        self._pieces = pieces
        self._threads: list[threading.Thread] = []
        self._ends: list[socket.socket] = []

    def dial(self, _port: int) -> socket.socket:
        near, far = socket.socketpair()
        self._ends.append(far)
        thread = threading.Thread(target=self._serve, args=(far,))
        self._threads.append(thread)
        thread.start()
        return near

    def _serve(self, far: socket.socket) -> None:
        with contextlib.suppress(OSError):  # the client hung up
            asked = b""
            while b"\r\n\r\n" not in asked:
                data = far.recv(65536)
                if not data:
                    return
                asked += data
            for piece in self._pieces():
                far.sendall(piece)
            far.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        for far in self._ends:
            with contextlib.suppress(OSError):
                far.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()
        for far in self._ends:
            far.close()


@pytest.fixture
def supervisor(supervisor: FakeSupervisor) -> FakeSupervisor:
    supervisor.api.routes["GET", f"/v1/sandboxes/{SANDBOX_ID}"] = {
        "sandbox_id": SANDBOX_ID, "name": None, "image": "base", "state": "crashed", "created_at": 1.0,
        "changed_at": 1.0, "env": {}, "metadata": {}, "network": "none", "memory_mib": None, "vcpus": None,
        "user": "user", "cwd": "/",
    }  # fmt: skip
    return supervisor


@pytest.mark.parametrize("answer", ANSWERS)
def test_every_call_ends_with_an_error_of_ours(
    supervisor: FakeSupervisor, sandbox: Sandbox, tmp_path: Path, answer: str
) -> None:
    evil = EvilAgent(ANSWERS[answer])
    supervisor.dial = evil.dial
    outcomes = {}
    try:
        for name, call in CALLS.items():
            try:
                outcomes[name] = call(sandbox, tmp_path)
            except AtollError as error:
                assert len(str(error)) < 4000
    finally:
        evil.close()
    assert set(outcomes) <= ANY_SUCCESS, outcomes


def peak_bytes(call: Callable[[], object]) -> int:
    tracemalloc.start()
    try:
        with pytest.raises(AtollError):
            call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_an_answer_without_an_end_takes_bounded_memory(supervisor: FakeSupervisor, sandbox: Sandbox) -> None:
    evil = EvilAgent(ANSWERS["an answer without an end"])
    supervisor.dial = evil.dial
    try:
        assert peak_bytes(lambda: sandbox.files.list("/")) < 4 * 64 * MIB
    finally:
        evil.close()


def test_a_body_in_tiny_pieces_takes_little_more_memory_than_it_has(
    supervisor: FakeSupervisor, sandbox: Sandbox
) -> None:
    evil = EvilAgent(lambda: endless(b"xy"))
    supervisor.dial = evil.dial
    try:
        assert peak_bytes(lambda: sandbox.files.read("/f", max_bytes=MIB // 32)) < MIB // 2
    finally:
        evil.close()
