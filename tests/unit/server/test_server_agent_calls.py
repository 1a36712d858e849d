"""What the gateway reads from E2B clients' requests for the audit log."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.protocol import AGENT_PORT, ToldLine
from atoll.server.gateway.agent_calls import agent_call, seen
from atoll.server.gateway.hosts import Target
from atoll.server.gateway.request import GatewayRequest

ID = "d96jevrasmsrost9ugjf"
START = b"/process.Process/Start"
HELLO = hashlib.sha256(b"hello").hexdigest()


def request(
    path: bytes, method: str = "POST", query: bytes = b"", port: int = AGENT_PORT, **named: str
) -> Any:
    headers = {name.replace("_", "-").encode(): value.encode() for name, value in named.items()}
    return GatewayRequest(
        target=Target(ID, port),
        method=method,
        path=path,
        query=query,
        headers=list(headers.items()),
        host=b"x",
        peer="192.0.2.1",
        scheme="https",
        is_h2=False,
        patience_s=1.0,
        named=headers,
    )


def told(
    asked: GatewayRequest, body: bytes, answer: bytes = b"", status: int = 200, *, complete: bool = True
) -> list[dict[str, Any]]:
    """What is told of a request whose body and answer pass in small pieces."""
    heard: list[ToldLine] = []
    call = agent_call(asked, heard.append)
    assert call is not None
    pieces = [{"type": "http.request", "body": body[at : at + 7]} for at in range(0, len(body), 7)] or [
        {"type": "http.request"}
    ]
    out: list[Any] = []

    async def receive() -> Any:
        return pieces.pop(0)

    async def send(message: Any) -> None:
        out.append(message)

    async def passing() -> None:
        received, sent = seen(call, receive, send)
        passed = b""
        while pieces:
            passed += (await received()).get("body", b"")
        assert passed == body
        await sent({"type": "http.response.start", "status": status, "headers": []})
        await sent({"type": "http.response.body", "body": answer[:2], "more_body": True})
        await sent({"type": "http.response.body", "body": answer[2:]})

    asyncio.run(passing())
    assert len(out) == 3
    call.ended(complete=complete)
    lines: list[dict[str, Any]] = msgspec.json.decode(msgspec.json.encode(heard))
    for line in lines:
        del line["at"]
    return lines


def envelope(data: bytes, flags: int = 0) -> bytes:
    return bytes([flags]) + len(data).to_bytes(4, "big") + data


def field(number: int, data: bytes) -> bytes:
    assert len(data) < 128
    return bytes([number << 3 | 2, len(data)]) + data


JSON = json.dumps(
    {"process": {"cmd": "/bin/bash", "args": ["-l", "-c", "echo hi"], "envs": {"A": "b"}}}
).encode()
CONFIG = field(1, b"/bin/bash") + b"".join(field(2, part) for part in (b"-l", b"-c", b"echo hi"))
PROTO = field(1, CONFIG + field(3, field(1, b"A") + field(2, b"b"))) + field(4, b"tag") + b"\x28\x01"
MULTIPART = (
    b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="/a/b c.txt"\r\n\r\nhello'
    b'\r\n--xyz\r\nContent-Disposition: form-data; name="other"\r\n\r\nhello'
    b'\r\n--xyz\r\nContent-Disposition: form-data; name="file"; filename="two"\r\n\r\n'
    b"\r\n--xyz--\r\n"
)


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/connect+json", envelope(JSON)),
        ("application/connect+json", envelope(gzip.compress(JSON), 1)),
        ("application/connect+proto", envelope(PROTO)),
    ],
    # not the bodies: a compressed one has the time in it
    ids=["json", "gzip", "proto"],
)
def test_a_program_is_told_with_its_arguments_and_user(kind: str, body: bytes) -> None:
    asked = request(START, content_type=kind, authorization="Basic cm9vdDo=")
    assert told(asked, body) == [
        {"act": "command.started", "argv": ["/bin/bash", "-l", "-c", "echo hi"], "user": "root"}
    ]
    assert told(asked, body, status=404) == []


def test_files_are_told_with_size_and_hash() -> None:
    asked = request(b"/files", "GET", b"path=%2Fa%20b&username=ada")
    line = {"act": "file.read", "path": "/a b", "bytes": 5, "sha256": HELLO, "user": "ada"}
    assert told(asked, b"", b"hello") == [line]
    del line["sha256"]
    assert told(asked, b"", b"hello", complete=False) == [line]
    assert told(asked, b"", b"hello", 206) == [line]
    raw = request(b"/files", query=b"path=x", content_type="application/octet-stream")
    assert told(raw, b"hello") == [{"act": "file.written", "path": "x", "bytes": 5, "sha256": HELLO}]
    form = request(b"/files", content_type="multipart/form-data; boundary=xyz")
    assert told(form, b"\r\n" + MULTIPART) == told(form, MULTIPART)
    assert told(form, MULTIPART) == [
        {"act": "file.written", "path": "/a/b c.txt", "bytes": 5, "sha256": HELLO},
        {"act": "file.written", "path": "two", "bytes": 0, "sha256": hashlib.sha256(b"").hexdigest()},
    ]
    packed = request(b"/files", content_type="multipart/form-data; boundary=xyz", content_encoding="gzip")
    assert told(packed, gzip.compress(MULTIPART)) == told(form, MULTIPART)


def test_code_is_told_and_other_requests_are_not_looked_at() -> None:
    asked = request(b"/execute", port=49999)
    assert told(asked, b'{"code":"1 + 1"}') == [{"act": "code.run", "line": "1 + 1"}]
    for other in (
        request(b"/execute", port=80),
        request(b"/process.Process/List"),
        request(b"/files", "HEAD"),
        request(b"/health", "GET"),
    ):
        assert agent_call(other, print) is None


BODIES = st.one_of(st.binary(max_size=60), st.sampled_from([envelope(JSON), envelope(PROTO), MULTIPART]))


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from([START, b"/files"]),
    st.sampled_from(
        ["application/connect+json", "application/connect+proto", "multipart/form-data; boundary=xyz", ""]
    ),
    BODIES,
    st.integers(0, 60),
    st.sampled_from(["", "gzip", "br"]),
)
def test_whatever_cannot_be_read_is_told_in_part(
    path: bytes, kind: str, body: bytes, cut: int, coding: str
) -> None:
    asked = request(path, content_type=kind, content_encoding=coding, authorization="Basic =")
    for line in told(asked, body[:cut]):
        assert line["act"] in ("command.started", "file.written")
