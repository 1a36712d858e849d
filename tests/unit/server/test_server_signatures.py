from __future__ import annotations

from urllib.parse import urlencode

import pytest
from e2b.sandbox.signature import get_signature

from atoll.server.gateway.signatures import BadSignatureError, checked, sign

TOKEN, NOW = "t" * 64, 1_800_000_000.0


def query(**values: object) -> bytes:
    return urlencode(values).encode()


def test_it_is_the_signature_that_the_sdk_makes() -> None:
    made = get_signature("/a b", "read", "user", TOKEN, 3600)
    assert made["signature"] == sign("/a b", "read", "user", TOKEN, str(made["expiration"]))


def test_a_right_signature_gives_the_path_and_the_user_and_no_more() -> None:
    given = query(path="/a b", username="me", signature=sign("/a b", "read", "me", TOKEN, ""), other="x")
    assert checked(given, "read", TOKEN, NOW) == b"path=%2Fa+b&username=me"


@pytest.mark.parametrize(
    "change",
    [{"path": "/b"}, {"username": "root"}, {"signature_expiration": "1900000000"}, {"signature": "v1_x"}],
)
def test_a_signature_holds_for_what_was_signed_alone(change: dict[str, str]) -> None:
    signed = {"path": "/a", "username": "me", "signature": sign("/a", "read", "me", TOKEN, "")}
    with pytest.raises(BadSignatureError, match="^invalid signature$"):
        checked(query(**signed | change), "read", TOKEN, NOW)


def test_a_signature_to_read_does_not_write() -> None:
    with pytest.raises(BadSignatureError, match="^invalid signature$"):
        checked(query(path="/a", signature=sign("/a", "read", "", TOKEN, "")), "write", TOKEN, NOW)


def test_a_signature_to_read_is_none_to_write_a_shorter_path_for_a_stranger_user() -> None:
    signature = sign("/a:write:me", "read", "", TOKEN, "")
    assert signature == sign("/a", "write", "me:read:", TOKEN, "")
    with pytest.raises(BadSignatureError, match="^invalid signature$"):
        checked(query(path="/a", username="me:read:", signature=signature), "write", TOKEN, NOW)


def test_without_a_signature_it_is_missing() -> None:
    with pytest.raises(BadSignatureError, match="^missing signature query parameter$"):
        checked(query(path="/a"), "read", TOKEN, NOW)


@pytest.mark.parametrize("expiration", ["1799999999", "-1", "1e99", "9" * 30, "²"])
def test_a_signature_expires(expiration: str) -> None:
    given = query(
        path="/a", signature_expiration=expiration, signature=sign("/a", "read", "", TOKEN, expiration)
    )
    with pytest.raises(BadSignatureError, match="^signature is already expired$"):
        checked(given, "read", TOKEN, NOW)


def test_a_signature_holds_until_its_last_second() -> None:
    end = str(int(NOW))
    given = query(path="/a", signature_expiration=end, signature=sign("/a", "read", "", TOKEN, end))
    assert checked(given, "read", TOKEN, NOW) == b"path=%2Fa"


@pytest.mark.parametrize("more", [b"&path=/secret", b"&%70ath=/secret", b"&username=root"])
def test_a_value_given_twice_is_refused(more: bytes) -> None:
    signed = query(path="/a", username="", signature=sign("/a", "read", "", TOKEN, ""))
    with pytest.raises(BadSignatureError):
        checked(signed + more, "read", TOKEN, NOW)
