"""Tricks with requests of HTTP/1: their framing, their hosts, their paths and their methods."""

from __future__ import annotations

from collections.abc import Callable

from tests.security.egress.ground import EVIL, GOOD, Ground
from tests.security.egress.gullible import Framing, Host, Reading, readings
from tests.security.egress.row import Row, SetUp, allowing, plain, unread

_HOST = f"Host: {GOOD}\r\n".encode()
_NO = b"GET /no HTTP/1.1\r\n" + _HOST + b"\r\n"
_ONLY_OK = allowing({"paths": ("/ok", "/ok/**")})
_ALL_BUT_NO = allowing({"action": "deny", "paths": ("/no", "/no/**")}, {"protocol": "http"})
_READS = allowing({"methods": ("GET", "POST")})
_HTTP = allowing({"protocol": "http"})


def _forbidden(found: Reading) -> bool:
    return found.path.startswith("/no") or found.host == EVIL or found.method == "DELETE"


def _row(
    trick: str,
    sent: bytes,
    *,
    on: SetUp = _ONLY_OK,
    framing: Framing = "chunks",
    host: Host = "url",
    forbidden: Callable[[Reading], bool] = _forbidden,
) -> Row:
    async def attempt(ground: Ground) -> bool:
        await ground.talk(await ground.address(), ground.port, sent)
        return any(
            forbidden(one) for raw in ground.target.came for one in readings(bytes(raw), framing, host)
        )

    return Row(trick, attempt, unread, on, plain)


def _post(headers: bytes, body: bytes) -> bytes:
    return b"POST /ok HTTP/1.1\r\n" + _HOST + headers + b"\r\n" + body


def _framed() -> list[Row]:
    length = b"Content-Length: %d\r\n"
    chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(_NO), _NO)
    behind = b"0\r\n\r\n" + _NO
    te = b"Transfer-Encoding: chunked\r\n"
    hidden = length % len(behind) + te
    return [
        _row("smuggling: a length before chunks (CL.TE)", _post(hidden, behind)),
        _row(
            "smuggling: chunks before a length (TE.CL)",
            _post(b"Content-Length: 4\r\n" + te, chunk),
            framing="length",
        ),
        _row(
            "smuggling: two encodings (TE.TE)",
            _post(te + b"Transfer-Encoding: cow\r\n" + length % 4, chunk),
            framing="length",
        ),
        _row(
            "smuggling: an encoding that some do not know",
            _post(b"Transfer-Encoding: xchunked\r\n" + length % len(behind), behind),
        ),
        _row(
            "smuggling: an encoding behind a vertical tab",
            _post(b"Transfer-Encoding:\x0bchunked\r\n" + length % len(behind), behind),
        ),
        _row(
            "smuggling: a space behind the encoding's name",
            _post(b"Transfer-Encoding : chunked\r\n" + length % len(behind), behind),
        ),
        _row(
            "smuggling: an encoding with an underscore",
            _post(length % len(behind) + b"Transfer_Encoding: chunked\r\n", behind),
        ),
        _row(
            "smuggling: a folded encoding",
            _post(b"X: 1\r\n Transfer-Encoding: chunked\r\n" + length % len(behind), behind),
        ),
        _row(
            "smuggling: an encoding behind a bare return",
            _post(b"X: 1\rTransfer-Encoding: chunked\r\n" + length % len(behind), behind),
        ),
        _row(
            "smuggling: two lengths, the first counts (CL.CL)",
            _post(b"Content-Length: 0\r\n" + length % len(_NO), _NO),
            framing="length",
        ),
        _row(
            "smuggling: two lengths, the last counts",
            _post(length % len(_NO) + b"Content-Length: 0\r\n", _NO),
            framing="last length",
        ),
        _row(
            "smuggling: a list of lengths",
            _post(b"Content-Length: 0, %d\r\n" % len(_NO), _NO),
            framing="length",
        ),
        _row(
            "smuggling: a length with an underscore",
            _post(length % len(_NO) + b"Content_Length: 0\r\n", _NO),
            framing="last length",
        ),
        _row(
            "smuggling: a signed length",
            _post(b"Content-Length: +0\r\n" + length % len(_NO), _NO),
            framing="length",
        ),
        _row(
            "smuggling: a body that servers of GET do not expect",
            b"GET /ok HTTP/1.1\r\n" + _HOST + length % len(_NO) + b"\r\n" + _NO,
            framing="none",
        ),
        _row("smuggling: a length in HTTP/1.0 with chunks", _post(hidden, behind).replace(b"1.1", b"1.0", 1)),
        _row("smuggling: bare line feeds", _post(hidden, behind).replace(b"\r\n", b"\n")),
        _row(
            "smuggling: a chunk with an extension and a bare line feed",
            _post(te, b"1;a\nX\r\n0\r\n\r\n" + _NO),
        ),
        _row("smuggling: a chunk size with more behind it", _post(te, b"0 x\r\n\r\n" + _NO)),
        _row(
            "smuggling: trailers with a length",
            _post(te + b"Trailer: Content-Length\r\n", b"0\r\nContent-Length: 9\r\n\r\n" + _NO),
        ),
        _row("a second request on an allowed connection", b"GET /ok HTTP/1.1\r\n" + _HOST + b"\r\n" + _NO),
        _row("a second request behind a body", _post(length % 2, b"xx" + _NO)),
        _row(
            "a second request of HTTP/1.0 kept alive",
            b"GET /ok HTTP/1.0\r\nConnection: keep-alive\r\n" + _HOST + b"\r\n" + _NO,
        ),
        _row(
            "a second request behind an upgrade that the server ignores",
            b"GET /ok HTTP/1.1\r\n" + _HOST + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n" + _NO,
        ),
    ]


def _named() -> list[Row]:
    evil = EVIL.encode()
    get = b"GET /ok HTTP/1.1\r\n"
    second = get + _HOST + b"\r\n" + get + b"Host: " + evil + b"\r\n\r\n"
    by_name = allowing({})
    both: list[tuple[str, SetUp]] = [("rules about requests", _HTTP), ("a rule by name", by_name)]
    lines = {
        "another Host": get + b"Host: " + evil + b"\r\n\r\n",
        "another Host in a second request": second,
        "a URL of another host": b"GET http://" + evil + b"/x HTTP/1.1\r\n" + _HOST + b"\r\n",
        "a URL in HTTP/0.9": b"GET http://" + evil + b"/x\r\n",
        "an empty line before the request": b"\r\n" + get + b"Host: " + evil + b"\r\n\r\n",
        "a version in lower case": b"GET /ok http/1.1\r\nHost: " + evil + b"\r\n\r\n",
        "a blank behind the version": b"GET /ok HTTP/1.1 \r\nHost: " + evil + b"\r\n\r\n",
        "tabs in the request line": b"GET\t/ok\tHTTP/1.1\r\nHost: " + evil + b"\r\n\r\n",
        "a method in lower case": b"get /ok HTTP/1.1\r\nHost: " + evil + b"\r\n\r\n",
        "an unknown method": b"X-ODD /ok HTTP/1.1\r\nHost: " + evil + b"\r\n\r\n",
    }
    rows = [_row(f"{trick}, under {name}", sent, on=on) for trick, sent in lines.items() for name, on in both]
    asked = {
        "CONNECT to another host": b"CONNECT " + evil + b":443 HTTP/1.1\r\nHost: " + evil + b":443\r\n\r\n",
        "two Hosts, the last counts": get + _HOST + b"Host: " + evil + b"\r\n\r\n",
        "two Hosts, the first counts": get + b"Host: " + evil + b"\r\n" + _HOST + b"\r\n",
        "a Host before all, folded": b"GET /ok HTTP/1.1\r\n Host: " + evil + b"\r\n" + _HOST + b"\r\n",
        "a space behind Host": get + _HOST + b"Host : " + evil + b"\r\n\r\n",
        "a Host with a user": get + b"Host: " + GOOD.encode() + b"@" + evil + b"\r\n\r\n",
        "a Host with a port and a last dot": get + b"Host: " + evil.upper() + b".:80\r\n\r\n",
        "a Host behind a bare return": get + _HOST + b"X: 1\rHost: " + evil + b"\r\n\r\n",
        "a URL of another host with the right one as user": b"GET http://"
        + GOOD.encode()
        + b"@"
        + evil
        + b"/ HTTP/1.1\r\n"
        + _HOST
        + b"\r\n",
        "a URL of another host in another scheme": b"GET https://"
        + evil
        + b"/ HTTP/1.1\r\n"
        + _HOST
        + b"\r\n",
    }
    rows += [
        _row(
            trick,
            sent,
            on=_HTTP,
            host="last" if "last" in trick or "space" in trick or "bare" in trick else "url",
        )
        for trick, sent in asked.items()
    ]

    def leads_elsewhere(found: Reading) -> bool:
        return found.host == EVIL

    rows.append(
        _row(
            "a path that Go would write as a URL",
            b"GET http://%s/x HTTP/1.1\r\n%s\r\n" % (evil, _HOST),
            on=_HTTP,
            forbidden=leads_elsewhere,
        )
    )
    return rows


_OUT_OF_OK = (
    "/ok/../no", "/ok/%2e%2E/no", "/ok/.%2e/no", "/ok/..%2fno", "/ok/%2e%2e%2fno", "/ok/..;/no", "/ok/..;x=1/no",
    "/ok/%2e%2e%3b/no", "/ok/..\\no", "/ok/..%5cno", "/ok/%252e%252e/no", "/ok/..%252fno", "/ok/%25252e%25252e/no",
    "/ok/../no%00.png", "/ok//../../no", "/ok/x/.;/../../no", "/ok/..//no", "/ok/%c0%ae%c0%ae/no", "/ok/..%255cno",
)  # fmt: skip
_INTO_NO = (
    "/NO", "/%6eo", "/%6E%6F", "//no", "/./no", "/x/../no", "/no;x=1", "/;/no", "/%256eo", "/no%00", "/no%2Fx",
    "/%2fno", "/no%3bx", "/\\no", "/x%2f..%2fno", "/%2e/no", "/NO/%2e%2e/no/x",
)  # fmt: skip


def _paths() -> list[Row]:
    def get(path: str, headers: bytes = b"") -> bytes:
        return f"GET {path} HTTP/1.1\r\n".encode() + _HOST + headers + b"\r\n"

    rows = [_row(f"out of an allowed path: {path}", get(path)) for path in _OUT_OF_OK]
    rows += [_row(f"around a denied path: {path}", get(path), on=_ALL_BUT_NO) for path in _INTO_NO]
    for name in ("X-Original-URL", "X-Rewrite-URL", "X_Original_Url"):
        rows.append(_row(f"another path in {name}", get("/ok", f"{name}: /no\r\n".encode())))
    return rows


def _methods() -> list[Row]:
    def post(target: str, headers: str = "") -> bytes:
        return (
            f"POST {target} HTTP/1.1\r\n".encode() + _HOST + headers.encode() + b"Content-Length: 0\r\n\r\n"
        )

    names = (
        "X-HTTP-Method-Override",
        "X-HTTP-Method",
        "X-Method-Override",
        "X_HTTP_Method_Override",
        "x-http_method-override",
    )
    rows = [
        _row(f"another method in {name}", post("/ok", f"{name}: DELETE\r\n"), on=_READS) for name in names
    ]
    targets = (
        "/ok?_method=DELETE",
        "/ok?a=1&%5Fmethod=delete",
        "/ok?a=1;_method=DELETE",
        "/ok?X-HTTP-Method-Override=DELETE",
    )
    rows += [_row(f"another method in a parameter: {target}", post(target), on=_READS) for target in targets]
    rows.append(_row("another method in lower case", b"delete /ok HTTP/1.1\r\n" + _HOST + b"\r\n", on=_READS))
    return rows


ROWS = [*_framed(), *_named(), *_paths(), *_methods()]
