"""Tricks with TLS, HTTP/2, upgrades, and protocols that are no HTTP at first."""

from __future__ import annotations

import ssl

import hpack
from hyperframe.frame import DataFrame, Frame, HeadersFrame, SettingsFrame

from tests.security.egress.greetings import greeting, in_records, with_extension
from tests.security.egress.ground import EVIL, GOOD, Ground
from tests.security.egress.gullible import readings
from tests.security.egress.row import Row, SetUp, allowing, plain, secured, unread

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + SettingsFrame(0).serialize()
_HTTP = allowing({"protocol": "http"})
_BY_NAME = allowing({})
_RAW_TOO = allowing({"methods": ("GET",), "paths": ("/ok",)}, {})
_ONLY_OK = allowing({"paths": ("/ok",)})


def _hello(name: str | None, alpn: tuple[str, ...] = ()) -> bytes:
    if not alpn:
        return greeting(name)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.set_alpn_protocols(list(alpn))
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=name)
    try:
        client.do_handshake()
    except ssl.SSLWantReadError:
        return outgoing.read()
    raise AssertionError


def _greeting(trick: str, hello: bytes, on: SetUp) -> Row:
    """A handshake that must not reach the server as it is."""

    async def attempt(ground: Ground) -> bool:
        await ground.talk(await ground.address(), ground.port, hello)
        return hello in ground.raw()

    return Row(trick, attempt, unread, on, plain)


def _greetings() -> list[Row]:
    rows = []
    for name, on in (("a rule by name", _BY_NAME), ("rules about requests and one by name", _RAW_TOO)):
        hellos = {
            "another name in TLS": _hello(EVIL),
            "no name in TLS": _hello(None),
            "a name below the right one in TLS": _hello(f"x.{GOOD}"),
            "another name in TLS, in small records": in_records(_hello(EVIL), 20),
            "a hidden name in TLS (ECH)": with_extension(_hello(GOOD), 0xFE0D),
            "another name in TLS with a protocol of its own": _hello(EVIL, ("own",)),
            "no name in TLS with a protocol of its own": _hello(None, ("own",)),
            "a hidden name in TLS (ECH) with a protocol of its own": with_extension(
                _hello(GOOD, ("own",)), 0xFE0D
            ),
            "another name in TLS with HTTP/3's protocol": _hello(EVIL, ("h3",)),
        }
        rows += [_greeting(f"{trick}, under {name}", hello, on) for trick, hello in hellos.items()]
    return rows


def _inside_tls(trick: str, server_name: str | None, host: str, on: SetUp = _HTTP, path: str = "/ok") -> Row:
    async def attempt(ground: Ground) -> bool:
        sent = f"GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode()
        await ground.talk_tls(await ground.address(), server_name, sent)
        return bool(readings(ground.raw()))

    return Row(trick, attempt, unread, on, secured)


def requests_of_h2(raw: bytes) -> list[dict[str, str]]:
    """The requests in what came of HTTP/2."""
    raw, found, decoder = raw.partition(b"SM\r\n\r\n")[2], [], hpack.Decoder()
    while len(raw) >= 9:
        frame, length = Frame.parse_frame_header(memoryview(raw[:9]))
        if isinstance(frame, HeadersFrame) and len(raw) >= 9 + length:
            frame.parse_body(memoryview(raw[9 : 9 + length]))
            found.append({str(name): str(value) for name, value in decoder.decode(frame.data)})
        raw = raw[9 + length :]
    return found


Fields = list[tuple[str, str]]


def _fields(
    *more: tuple[str, str], path: str = "/ok", authority: str | None = GOOD, method: str = "GET"
) -> Fields:
    asked = [] if authority is None else [(":authority", authority)]
    return [(":method", method), (":scheme", "http"), (":path", path), *asked, *more]


def _h2(
    trick: str, *streams: Fields, on: SetUp = _ONLY_OK, in_tls: bool = False, body: bytes | None = None
) -> Row:
    """The last stream is what must not arrive."""
    encoder = hpack.Encoder()
    sent = _PREFACE
    for number, fields in enumerate(streams):
        flags = ["END_HEADERS"] if body is not None else ["END_HEADERS", "END_STREAM"]
        data = encoder.encode(fields, huffman=False)
        sent += HeadersFrame(2 * number + 1, data, flags=flags).serialize()
        if body is not None:
            sent += DataFrame(2 * number + 1, body, flags=["END_STREAM"]).serialize()

    async def attempt(ground: Ground) -> bool:
        address = await ground.address()
        if in_tls:
            await ground.talk_tls(address, GOOD, sent, alpn=("h2",))
        else:
            await ground.talk(address, ground.port, sent)
        seen = 0
        for raw in map(bytes, ground.target.came):
            texts = [one for one in readings(raw) if one.path != "/ok" or one.host != GOOD]
            if texts and not raw.startswith(b"PRI "):
                return True
            seen += len(requests_of_h2(raw)) if raw.startswith(b"PRI ") else len(readings(raw))
        return seen >= len(streams)

    return Row(trick, attempt, unread, on, secured if in_tls else plain)


def _streams() -> list[Row]:
    fine = _fields()
    return [
        _h2("HTTP/2: another authority", _fields(authority=EVIL)),
        _h2("HTTP/2: another authority in the second stream", fine, _fields(authority=EVIL)),
        _h2("HTTP/2: another path in the second stream", fine, _fields(path="/no")),
        _h2("HTTP/2: another host without authority", _fields(("host", EVIL), authority=None)),
        _h2("HTTP/2: a path that is a URL", _fields(path=f"http://{EVIL}/ok")),
        _h2("HTTP/2: CONNECT", [(":method", "CONNECT"), (":authority", f"{EVIL}:443")]),
        _h2(
            "HTTP/2: two authorities", [*_fields(authority=None), (":authority", GOOD), (":authority", EVIL)]
        ),
        _h2("HTTP/2: two paths", [*_fields(), (":path", "/no")]),
        _h2("HTTP/2: an authority with a user", _fields(authority=f"{GOOD}@{EVIL}")),
        _h2("HTTP/2: an authority with another port", _fields(authority=f"{GOOD}:1")),
        _h2("HTTP/2: dots in the path", _fields(path="/ok/../no")),
        _h2("HTTP/2: another name under a rule by name", _fields(authority=EVIL), on=_BY_NAME),
        _h2("HTTP/2 in TLS: another authority", _fields(authority=EVIL), in_tls=True),
        _h2(
            "HTTP/2 in TLS: another authority in the second stream",
            fine,
            _fields(authority=EVIL),
            in_tls=True,
        ),
        _h2("HTTP/2 to HTTP/1: a line break in a value", _fields(("x", f"1\r\nHost: {EVIL}")), in_tls=True),
        _h2(
            "HTTP/2 to HTTP/1: a request in a value",
            _fields(("x", "1\r\n\r\nGET /no HTTP/1.1\r\n")),
            in_tls=True,
        ),
        _h2(
            "HTTP/2 to HTTP/1: a line break in a name",
            _fields((f"x: 1\r\nhost: {EVIL}\r\ny", "1")),
            in_tls=True,
        ),
        _h2("HTTP/2 to HTTP/1: a blank in the method", _fields(method=f"GET http://{EVIL}/"), in_tls=True),
        _h2("HTTP/2 to HTTP/1: a blank in the path", _fields(path="/ok HTTP/1.1\r\nX: "), in_tls=True),
        _h2(
            "HTTP/2 to HTTP/1: chunks in a body",
            _fields(("transfer-encoding", "chunked"), method="POST"),
            body=b"0\r\n\r\nGET /no HTTP/1.1\r\nHost: x\r\n\r\n",
            in_tls=True,
        ),
        _h2(
            "HTTP/2 to HTTP/1: a length shorter than the body",
            _fields(("content-length", "0"), method="POST"),
            body=b"GET /no HTTP/1.1\r\nHost: x\r\n\r\n",
            in_tls=True,
        ),
    ]


def _upgrade(trick: str, upgrade: str, server: str, *, headers: str = "") -> Row:
    """After the server has changed the protocol, requests would go on that nobody judges."""

    async def attempt(ground: Ground) -> bool:
        ground.target.answer = f"HTTP/1.1 101 x\r\nConnection: Upgrade\r\nUpgrade: {server}\r\n\r\n".encode()
        head = (
            f"GET /ok HTTP/1.1\r\nHost: {GOOD}\r\nConnection: Upgrade\r\nUpgrade: {upgrade}\r\n{headers}\r\n"
        )
        await ground.talk(
            await ground.address(), ground.port, head.encode(), b"GET /no HTTP/1.1\r\nHost: x\r\n\r\n"
        )
        return b"/no" in ground.raw()

    return Row(trick, attempt, unread, _ONLY_OK, plain)


def _late(trick: str, late: bytes) -> Row:
    """The server speaks first, and only then the guest begins what would have been judged."""

    async def attempt(ground: Ground) -> bool:
        ground.target.greeting = b"220 hello\r\n"
        try:
            with await ground.guest.connect(await ground.address(), ground.port) as connected:
                assert await ground.hear(connected, 11) == b"220 hello\r\n"
                connected.sendall(late)
                await ground.hear(connected, 1)
        except OSError:
            return False
        return late in ground.raw()

    return Row(trick, attempt, unread, _RAW_TOO, plain)


def _others() -> list[Row]:
    evil = f"GET /no HTTP/1.1\r\nHost: {EVIL}\r\n\r\n".encode()
    settings = "HTTP2-Settings: AAMAAABkAAQAAP__\r\n"
    return [
        _inside_tls("another Host inside TLS", GOOD, EVIL),
        _inside_tls("another name in TLS, the right Host", EVIL, GOOD),
        _inside_tls("another name in TLS and as Host", EVIL, EVIL),
        _inside_tls("no name in TLS, another Host", None, EVIL),
        _inside_tls("another path inside TLS", GOOD, GOOD, _ONLY_OK, "/no"),
        _upgrade("an upgrade to HTTP/2 (h2c)", "h2c", "h2c", headers=settings),
        _upgrade("an upgrade to HTTP/2 by its long name", "HTTP/2.0", "HTTP/2.0"),
        _upgrade("an upgrade to TLS", "TLS/1.0, HTTP/1.1", "TLS/1.0"),
        _upgrade("an upgrade with a choice", "websocket, h2c", "h2c"),
        _upgrade("an upgrade that the server answers with another", "websocket", "h2c"),
        _upgrade("an upgrade that Connection does not name", "h2c\r\nConnection: x", "h2c"),
        _late("a request after the server has spoken", evil),
        _late("HTTP/2 after the server has spoken", _PREFACE + b"\0"),
        _late("TLS after the server has spoken", _hello(EVIL)),
    ]


ROWS = [*_greetings(), *_streams(), *_others()]
