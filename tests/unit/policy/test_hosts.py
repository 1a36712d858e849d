from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from atoll.policy import matches_host, plain_host, plain_pattern

LABELS = st.from_regex(r"[a-z0-9_]([a-z0-9_-]{0,5}[a-z0-9_])?", fullmatch=True)
NAMES = (
    st.lists(LABELS, min_size=1, max_size=5).map(".".join).filter(lambda name: plain_host(name) is not None)
)


@pytest.mark.parametrize(
    ("written", "plain"),
    [
        ("example.com", "example.com"),
        ("EXAMPLE.Com", "example.com"),
        ("example.com.", "example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("BÜCHER.example", "xn--bcher-kva.example"),
        ("bu\u0308cher.example", "xn--bcher-kva.example"),
        ("XN--bcher-KVA.example", "xn--bcher-kva.example"),
        ("_dmarc.example.com", "_dmarc.example.com"),
        ("a_b.example", "a_b.example"),
        ("r3---sn-x.example", "r3---sn-x.example"),
        ("localhost", "localhost"),
        ("1password.com", "1password.com"),
        ("4.3.2.1.in-addr.arpa", "4.3.2.1.in-addr.arpa"),
        ("a" * 63 + ".example", "a" * 63 + ".example"),
    ],
)
def test_a_name_has_one_plain_form(written: str, plain: str) -> None:
    assert plain_host(written) == plain
    assert plain_host(plain) == plain


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "..",
        "example.com..",
        ".example.com",
        "a..b",
        "-a.example",
        "a-.example",
        "a" * 64 + ".example",
        "a." * 127 + "aa",
        "a b.example",
        "a\n",
        "example.com\n",
        "a\0b.example",
        "example.com:443",
        "user@example.com",
        "http://example.com",
        "example.com/",
        "*",
        "*.example.com",
        "x" * 1_000_000,
    ],
)
def test_what_is_no_host_name_has_no_plain_form(text: str) -> None:
    assert plain_host(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "127.0.0.1",
        "10.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.0x1",
        "1.2.3.0x",
        "example.0X1F",
        "::1",
        "[::1]",
        "fe80::1%eth0",
        "１２７.0.0.1",
        "127。0。0。1",
    ],
)
def test_an_address_in_whatever_form_is_no_name(text: str) -> None:
    assert plain_host(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "straße.example",  # fass or xn--strae-oqa, depending on the program
        "βόλος.example",
        "a\u200db.example",
        "a\u00adb.example",
        "ｅｘample.com",
        "example。com",
        "exam\u2024ple.com",
    ],
)
def test_a_name_that_programs_read_differently_is_refused(text: str) -> None:
    assert plain_host(text) is None


@pytest.mark.parametrize(
    ("pattern", "plain"),
    [
        ("*", "*"),
        ("*.Example.COM.", "*.example.com"),
        ("*.bücher.example", "*.xn--bcher-kva.example"),
        ("example.com", "example.com"),
        ("*.com", "*.com"),
        ("*.", None),
        ("**", None),
        ("*.*", None),
        ("**.example.com", None),
        ("a*.example.com", None),
        ("a.*.example.com", None),
        ("*example.com", None),
        (".example.com", None),
        ("*.1.2.3.4", None),
        ("", None),
    ],
)
def test_a_pattern_is_a_name_or_all_below_one_or_every_name(pattern: str, plain: str | None) -> None:
    assert plain_pattern(pattern) == plain


@pytest.mark.parametrize("name", ["a.example.com", "a.b.c.example.com", "xn--a.example.com"])
def test_a_wildcard_matches_names_at_any_depth(name: str) -> None:
    assert matches_host("*.example.com", name)


@pytest.mark.parametrize(
    "name", ["example.com", "evilexample.com", "example.com.evil.org", "a.example.co", "com", "aexample.com"]
)
def test_a_wildcard_matches_neither_the_apex_nor_what_only_ends_alike(name: str) -> None:
    assert not matches_host("*.example.com", name)


def test_a_name_matches_itself_alone() -> None:
    assert matches_host("example.com", "example.com")
    assert not matches_host("example.com", "www.example.com")


@settings(deadline=None, derandomize=True, database=None)
@given(st.text(max_size=300))
def test_the_plain_form_of_any_text_is_ascii_and_stays_as_it_is(text: str) -> None:
    plain = plain_host(text)
    if plain is not None:
        assert plain.isascii() and plain == plain.lower() and not plain.endswith(".")
        assert plain_host(plain) == plain


@settings(deadline=None, derandomize=True, database=None)
@given(NAMES, NAMES)
def test_a_wildcard_matches_just_what_has_more_labels_before_its_own(name: str, other: str) -> None:
    labels, others = name.split("."), other.split(".")
    below = len(others) > len(labels) and others[-len(labels) :] == labels
    assert matches_host(f"*.{name}", other) == below
    assert matches_host(f"*.{name}", f"{other}.{name}")
