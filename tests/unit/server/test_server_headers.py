"""The heads of requests as servers inside get them."""

from atoll.server.gateway.headers import head


def test_names_have_the_spelling_of_http_1() -> None:
    sent = head("GET", b"/", [(b"host", b"a"), (b"x-b3-traceid", b"b"), (b"e2b-sandbox-id", b"c")])
    assert sent == b"GET / HTTP/1.1\r\nHost: a\r\nX-B3-Traceid: b\r\nE2b-Sandbox-Id: c\r\n\r\n"
