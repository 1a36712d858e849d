"""Reads requests as the most gullible of servers: what an attacker hopes to find behind the edge."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal
from urllib.parse import unquote_to_bytes

_BLANKS = re.compile(rb"[ \t\v\f]+")
_URL = re.compile(rb"[a-z][a-z0-9+.-]*://([^/?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_OVERRIDES = (b"x-http-method-override", b"x-http-method", b"x-method-override")
_SIZE = re.compile(rb"\s*([0-9a-fA-F]+)")

Framing = Literal["chunks", "length", "last length", "none"]
Host = Literal["url", "first", "last"]


@dataclass(frozen=True)
class Reading:
    """A request as a gullible server takes it."""

    method: str
    host: str
    path: str
    body: bytes


def readings(raw: bytes, framing: Framing = "chunks", host: Host = "url") -> list[Reading]:
    """All requests in what came on a connection.

    Args:
        raw: What came.
        framing: What says where a body ends if several things do.
        host: Which host counts if there are several.
    """
    found: list[Reading] = []
    while True:
        raw = raw.lstrip(b"\r\n")
        line, newline, raw = raw.partition(b"\n")
        words = _BLANKS.split(line.strip())
        if not newline or len(words) < 2:
            return found
        headers, raw = _headers(raw)
        body, raw = _body(headers, raw, framing)
        found.append(_reading(words, headers, body, host))
        if any(name == b"connection" and b"close" in value.lower() for name, value in headers):
            return found


def _headers(raw: bytes) -> tuple[list[tuple[bytes, bytes]], bytes]:
    headers: list[tuple[bytes, bytes]] = []
    while raw:
        line, _, raw = raw.partition(b"\n")
        for text in line.rstrip(b"\r").split(b"\r"):
            name, colon, value = text.partition(b":")
            if text[:1] in (b" ", b"\t") and headers and not colon:
                headers[-1] = (headers[-1][0], headers[-1][1] + text)
            elif colon:
                headers.append((name.strip().lower().replace(b"_", b"-"), value.strip(b" \t\v\f\0")))
        if not line.strip(b"\r"):
            break
    return headers, raw


def _body(headers: list[tuple[bytes, bytes]], raw: bytes, framing: Framing) -> tuple[bytes, bytes]:
    chunked = any(name == b"transfer-encoding" and b"chunked" in value.lower() for name, value in headers)
    lengths = [
        int(found[0])
        for name, value in headers
        if name == b"content-length"
        for found in [re.findall(rb"\d+", value) or [b"0"]]
    ]
    if framing == "none":
        return b"", raw
    if chunked and (framing == "chunks" or not lengths):
        return _chunks(raw)
    if not lengths:
        return b"", raw
    length = lengths[-1] if framing == "last length" else lengths[0]
    return raw[:length], raw[length:]


def _chunks(raw: bytes) -> tuple[bytes, bytes]:
    body = b""
    while raw:
        line, _, raw = raw.partition(b"\n")
        size = _SIZE.match(line)
        if size is None or not int(size[1], 16):
            break
        body, raw = body + raw[: int(size[1], 16)], raw[int(size[1], 16) :].lstrip(b"\r").removeprefix(b"\n")
    while raw:  # trailers
        line, _, raw = raw.partition(b"\n")
        if not line.strip(b"\r"):
            break
    return body, raw


def _reading(words: list[bytes], headers: list[tuple[bytes, bytes]], body: bytes, host: Host) -> Reading:
    method, target = words[0].upper(), words[1]
    hosts = [value for name, value in headers if name == b"host"] or [b""]
    asked = hosts[-1] if host == "last" else hosts[0]
    if found := _URL.match(target):
        asked, target = (found[1] if host == "url" else asked), found[2] or b"/"
    path, _, query = target.partition(b"?")
    for name, value in headers:
        if name in _OVERRIDES:
            method = value.upper()
        if name in (b"x-original-url", b"x-rewrite-url"):
            path = value
    for pair in re.split(rb"[&;]", query):
        name, _, value = pair.partition(b"=")
        if unquote_to_bytes(name).lower() in (b"_method", *_OVERRIDES):
            method = unquote_to_bytes(value).upper()
    return Reading(method.decode(), _plain_host(asked), _plain_path(path), body)


def _plain_host(text: bytes) -> str:
    text = text.rpartition(b"@")[2].partition(b":")[0]
    return text.decode("latin-1").lower().rstrip(".")


def _plain_path(path: bytes) -> str:
    """The path after every decoding that some server does."""
    while (decoded := unquote_to_bytes(path)) != path:
        path = decoded
    path = path.replace(b"\xc0\xae", b".").partition(b"\0")[0].replace(b"\\", b"/").lower()
    kept: list[bytes] = []
    for segment in path.split(b"/"):
        name = segment.partition(b";")[0].strip(b" ")
        if name == b"..":
            kept = kept[:-1]
        elif name not in (b"", b"."):
            kept.append(name)
    return "/" + b"/".join(kept).decode("latin-1")
