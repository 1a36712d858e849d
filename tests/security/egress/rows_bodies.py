"""Tricks with what bodies say, with secrets, and with canaries."""

from __future__ import annotations

import base64
import codecs
import gzip
import json
import zlib
from collections.abc import Callable
from typing import Any, Literal

from atoll.types import Inject, Mcp, RateLimit
from tests.integration.network.testbed import eventually
from tests.security.egress.ground import EVIL, GOOD, OTHER, Ground
from tests.security.egress.row import Row, SetUp, allowing, plain, unread

_SECRET, _CANARY = "s3cr3t-value-0123456789", "AKIA-CANARY-0123456789"
_JSON, _PLAIN = "Content-Type: application/json\r\n", "Content-Type: text/plain\r\n"


def _post(headers: str, body: bytes, target: str = "/ok") -> bytes:
    head = f"POST {target} HTTP/1.1\r\nHost: {GOOD}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


def _body(trick: str, body: bytes, headers: str = _JSON, *, on: SetUp, honest: bytes) -> Row:
    """A body that must not arrive, and one that does."""

    async def attempt(ground: Ground) -> bool:
        await ground.talk(await ground.address(), ground.port, _post(headers, body))
        return body[:1000] in ground.raw()

    async def passes(ground: Ground) -> bool:
        heard = await ground.talk(
            await ground.address(), ground.port, _post(_JSON + "Connection: close\r\n", honest)
        )
        return heard.startswith(b"HTTP/1.1 200")

    return Row(trick, attempt, unread, on, passes)


def _fields() -> list[Row]:
    large = b'{"model": "large"}'
    both = b'{"model": "small", "model": "large"}'
    padded = b'{"model": "small", "x": "' + b"y" * (300 << 10) + b'", "model": "large"}'
    bodies: dict[str, tuple[bytes, str]] = {
        "another value": (large, _JSON),
        "a key twice, the last counts": (both, _JSON),
        "a key twice, the first counts": (b'{"model": "large", "model": "small"}', _JSON),
        "a key twice, once escaped": (b'{"model": "small", "m\\u006fdel": "large"}', _JSON),
        "a key twice, in another case": (b'{"model": "small", "MODEL": "large"}', _JSON),
        "a key twice, with a letter that becomes another": (
            '{"s": 1, "\u017f": 2, "model": "small"}'.encode(),
            _JSON,
        ),
        "a key twice, deep inside": (b'{"model": "small", "x": {"model": 1, "model": 2}}', _JSON),
        "a list of values": (b'{"model": ["small", "large"]}', _JSON),
        "two documents": (b'{"model": "small"}{"model": "large"}', _JSON),
        "a comment": (b'{"model": "small" /* */, "x": 1}', _JSON),
        "a comma at the end": (b'{"model": "small",}', _JSON),
        "a byte order mark": (codecs.BOM_UTF8 + b'{"model": "small"}', _JSON),
        "no UTF-8": (b'{"model": "small", "x": "\xff"}', _JSON),
        "UTF-16": (large.decode().encode("utf-16"), _JSON),
        "UTF-16 as it is declared": (
            b'{"model": "small"}',
            "Content-Type: application/json; charset=utf-16\r\n",
        ),
        "UTF-7 as it is declared": (
            b'{"model": "small", "x": "+ACI-"}',
            "Content-Type: application/json; charset=utf-7\r\n",
        ),
        "another type beside JSON": (b'{"model": "small"}', _JSON + _PLAIN),
        "another type with an underscore": (b'{"model": "small"}', _JSON + "Content_Type: text/plain\r\n"),
        "JSON that is called text": (b'{"model": "small"}', _PLAIN),
        "JSON without a type": (b'{"model": "small"}', ""),
        "a form": (b"model=small&model=large", "Content-Type: application/x-www-form-urlencoded\r\n"),
        "gzip": (gzip.compress(large), _JSON + "Content-Encoding: gzip\r\n"),
        "deflate": (zlib.compress(large), _JSON + "Content-Encoding: deflate\r\n"),
        "an encoding that is none, and one": (
            b'{"model": "small"}',
            _JSON + "Content-Encoding: identity, gzip\r\n",
        ),
        "an encoding with an underscore": (b'{"model": "small"}', _JSON + "Content_Encoding: gzip\r\n"),
        "a second value behind 256 KiB": (padded, _JSON),
        "a value below 65 others": (b'{"model": "small", "x": ' + b"[" * 70 + b"]" * 70 + b"}", _JSON),
    }
    on = allowing({"json": {"model": ("small",)}})
    return [
        _body(f"a body with {trick}", body, headers, on=on, honest=b'{"model": "small"}')
        for trick, (body, headers) in bodies.items()
    ]


def _tools() -> list[Row]:
    def call(tool: str, **more: object) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": tool, **more}}

    read, wipe = call("read"), call("wipe")
    bodies: dict[str, Any] = {
        "another tool": wipe,
        "another tool in a batch": [read, wipe],
        "an empty batch": [],
        "a batch in a batch": [[wipe]],
        "another method": {**read, "method": "tools/delete"},
        "a method in another case": {**wipe, "Method": "tools/call"},
        "an older version": {**read, "jsonrpc": "1.0"},
        "no version": {key: value for key, value in read.items() if key != "jsonrpc"},
        "a name that is a list": call("read", name=["wipe"]),
        "parameters in another case": {**read, "Params": wipe["params"]},
    }
    on = allowing({"mcp": Mcp(methods=("tools/call",), tools=("read",))})
    honest = json.dumps(read).encode()
    rows = [
        _body(f"MCP: {trick}", json.dumps(body).encode(), on=on, honest=honest)
        for trick, body in bodies.items()
    ]
    twice = b'{"jsonrpc":"2.0","method":"tools/call","params":{"name":"read","name":"wipe"}}'
    return [*rows, _body("MCP: a name twice", twice, on=on, honest=honest)]


def _lengths() -> list[Row]:
    async def attempt(ground: Ground) -> bool:
        chunks = (
            b"".join(b"4\r\n" + bytes([65 + number]) * 4 + b"\r\n" for number in range(26)) + b"0\r\n\r\n"
        )
        head = f"POST /ok HTTP/1.1\r\nHost: {GOOD}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
        await ground.talk(await ground.address(), ground.port, head + chunks)
        return b"ZZZZ" in ground.raw()

    rows = [Row("a long body of unknown length", attempt, unread, allowing({"max_body_bytes": 20}), plain)]
    honest = b"x" * 20
    rows.append(_body("a long body", b"x" * 21, on=allowing({"max_body_bytes": 20}), honest=honest))
    return rows


def _injecting(
    *,
    into: Literal["header", "query", "path"] = "header",
    key: str = "authorization",
    hosts: tuple[str, ...] = (GOOD,),
    **more: Any,
) -> SetUp:
    inject = Inject(secret="key", into=into, key=key, format="{}" if into == "query" else "Bearer {}")
    rules = ({"hosts": hosts, "inject": (inject,)}, {"hosts": (EVIL, OTHER), "protocol": "http"})
    return allowing(*rules, secrets={"key": _SECRET}, **more)


def _mine(trick: str, request: bytes, on: SetUp, mine: bytes = b"mine") -> Row:
    """What the guest writes where a secret goes must not arrive beside it."""

    async def attempt(ground: Ground) -> bool:
        await ground.talk(await ground.address(), ground.port, request)
        return mine in ground.raw()

    async def injected(ground: Ground) -> bool:
        await plain(ground)
        return _SECRET.encode() in ground.raw()

    return Row(trick, attempt, unread, on, injected)


def _own() -> list[Row]:
    def get(headers: str, target: str = "/ok") -> bytes:
        return f"GET {target} HTTP/1.1\r\nHost: {GOOD}\r\n{headers}\r\n".encode()

    head, query = _injecting(), _injecting(into="query", key="token")
    chunked = (
        f"POST /ok HTTP/1.1\r\nHost: {GOOD}\r\nTransfer-Encoding: chunked\r\nTrailer: Authorization\r\n\r\n"
    )
    trailed = chunked.encode() + b"0\r\nAuthorization: mine\r\n\r\n"
    also = _injecting(key="x-api-key")
    dropped = get("Connection: authorization\r\nAuthorization: mine\r\n")
    headers = {
        "the header itself": "Authorization: mine\r\n",
        "text around a placeholder": "Authorization: Bearer {{key}} mine\r\n",
        "the header twice": "Authorization: mine\r\nauthorization: mine\r\n",
        "the header in two lines": "Authorization: a\r\n mine\r\n",
    }
    rows = [_mine(f"a secret's place: {trick}", get(text), head) for trick, text in headers.items()]
    return [
        *rows,
        _mine("a secret's place: the header as a trailer", trailed, head),
        _mine("a secret's place: the header with underscores", get("X_Api_Key: mine\r\n"), also),
        _mine("a secret's place: the parameter itself", get("", "/ok?token=mine"), query),
        _mine("a secret's place: the parameter in other letters", get("", "/ok?a=1&%54oken=mine"), query),
        _mine("a secret's place: the parameter behind a semicolon", get("", "/ok?a=1;token=mine"), query),
        _mine("a secret's place: a header that Connection names", dropped, head),
    ]


def _leaks(trick: str, ask: Callable[[Ground], Any], *, off: SetUp, on: SetUp) -> Row:
    """A secret that must not come to where it is asked for."""

    async def attempt(ground: Ground) -> bool:
        await ask(ground)
        return _SECRET.encode() in ground.raw()

    return Row(trick, attempt, off, on)


def _secrets() -> list[Row]:
    def get(host: str, path: str = "/ok", headers: str = "") -> bytes:
        return f"GET {path} HTTP/1.1\r\nHost: {host}\r\n{headers}Connection: close\r\n\r\n".encode()

    async def redirected(ground: Ground) -> None:
        ground.target.answer = (
            f"HTTP/1.1 302 x\r\nLocation: http://{EVIL}/\r\nContent-Length: 0\r\n\r\n".encode()
        )
        heard = await ground.talk(
            await ground.address(OTHER), ground.port, get(OTHER, "/ok", "Authorization: PLACE\r\n")
        )
        assert EVIL.encode() in heard
        ground.target.came.clear()
        await ground.talk(
            await ground.address(EVIL), ground.port, get(EVIL, "/ok", "Authorization: PLACE\r\n")
        )

    async def named(ground: Ground) -> None:
        await ground.talk(await ground.address(OTHER), ground.port, get(OTHER))

    async def straight(ground: Ground) -> None:
        await ground.talk(await ground.address(), ground.port, get(GOOD))

    async def placed(ground: Ground) -> None:
        await ground.talk(await ground.address(), ground.port, get(GOOD, "/ok?x=PLACE", "X: PLACE\r\n"))

    everywhere = _injecting(hosts=(GOOD, OTHER, EVIL))
    return [
        _leaks(
            "a secret by a redirect to another host",
            redirected,
            off=everywhere,
            on=_injecting(hosts=(OTHER,)),
        ),
        _leaks("a secret to a host of another rule", named, off=everywhere, on=_injecting()),
        _leaks(
            "a secret to a host that it is not bound to any more",
            straight,
            off=_injecting(bound={"key": (GOOD,)}),
            on=_injecting(bound={"key": (OTHER,)}),
        ),
        _leaks(
            "a secret at another place than the rule's",
            placed,
            off=everywhere,
            on=_injecting(into="path", key="PLACE"),
        ),
    ]


def _canary(trick: str, request: bytes) -> Row:
    async def attempt(ground: Ground) -> bool:
        await ground.talk(await ground.address(), ground.port, request)
        await eventually(lambda: ground.raw() or ground.unplugged)
        return bool(ground.raw())

    return Row(
        trick, attempt, allowing({"protocol": "http"}), allowing({"protocol": "http"}, canaries=(_CANARY,))
    )


def _canaries() -> list[Row]:
    raw = _CANARY.encode()
    once = base64.b64encode(b"x" + raw).decode()

    def get(target: str, headers: str = "") -> bytes:
        return f"GET {target} HTTP/1.1\r\nHost: {GOOD}\r\n{headers}\r\n".encode()

    return [
        _canary("a canary in a path", get(f"/{_CANARY}")),
        _canary("a canary in a query", get(f"/?a={_CANARY}")),
        _canary("a canary in a header", get("/", f"X: {_CANARY}\r\n")),
        _canary("a canary in base64", get(f"/?a={once}")),
        _canary("a canary in hexadecimal digits", get(f"/?a={raw.hex()}")),
        _canary("a canary in a URL's escapes", get("/?a=" + "".join(f"%{char:02x}" for char in raw))),
        _canary("a canary in a body", _post("", b"xx" + raw)),
    ]


async def _many(ground: Ground) -> bool:
    for _ in range(3):
        await plain(ground)
    return len(ground.target.came) >= 1 and ground.raw().count(b"GET /ok") >= 3


ROWS = [
    *_fields(),
    *_tools(),
    *_lengths(),
    *_own(),
    *_secrets(),
    *_canaries(),
    Row(
        "more requests than a rule lets through",
        _many,
        unread,
        allowing({"limit": RateLimit(requests=2, per_s=3600.0)}),
        None,
    ),
]
