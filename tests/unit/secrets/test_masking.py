"""How the values of secrets are masked in text."""

from __future__ import annotations

import base64
import json
import re
import shlex
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest

from atoll.secrets import Mask

VALUE = "s3cr3t/Vålue+it's=\"&%"
MOST = 2000


def _escaped_wholly(value: str) -> str:
    return "".join(f"%{byte:02x}" for byte in value.encode())


@pytest.mark.parametrize(
    "form",
    [
        str,
        quote,
        quote_plus,
        lambda value: quote(value, safe=""),
        lambda value: re.sub("%..", lambda found: found[0].lower(), quote(value)),
        _escaped_wholly,
        json.dumps,
        lambda value: json.dumps(value, ensure_ascii=False),
        shlex.quote,
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
    ],
)
def test_a_value_is_masked_in_each_form(form: Callable[[str], str]) -> None:
    mask = Mask({"mail": VALUE, "other": "unrelated-value"})
    text = f"curl -H 'x: {form(VALUE)}' https://example.org"
    masked = mask.of(text, MOST)
    assert "[secret mail]" in masked
    assert form(VALUE)[2:-2] not in masked
    assert masked.endswith("https://example.org")


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
@pytest.mark.parametrize("before", ["", "u", "us", "use:", "user:"])
def test_a_value_is_masked_in_base64_at_each_alignment(encode: Callable[[bytes], bytes], before: str) -> None:
    text = encode(f"{before}{VALUE} and more".encode()).decode()
    masked = Mask({"mail": VALUE}).of(f"echo {text} | base64 -d", MOST)
    assert "[secret mail]" in masked
    assert len(masked.replace("[secret mail]", "")) < len(f"echo {text} | base64 -d") - len(VALUE)


def test_the_longest_value_is_masked_and_a_short_one_too() -> None:
    mask = Mask({"short": "1234", "long": "1234567890", "longer": "1234567890ab"})
    assert mask.of("1234567890ab 1234567890 1234", MOST) == "[secret longer] [secret long] [secret short]"


def test_a_value_that_the_bound_cuts_is_masked_and_nothing_behind_it_is_returned() -> None:
    mask = Mask({"mail": "a-secret-value"})
    text = f"{'x' * 95}a-secret-value and more"
    assert mask.of(text, 100) == f"{'x' * 95}[secret mail]"
    assert mask.of(text, 95) == "x" * 95


def test_a_part_of_a_value_tells_nothing() -> None:
    mask = Mask({"mail": "a-secret-value"})
    for part in ("a-secret", "a-secret-valu", "secret-value", "A-SECRET-VALUE"):
        assert mask.of(part, MOST) == part


def test_text_without_values_stays_as_it_is() -> None:
    text = "printf '%s %d%%' ünïcode %41 \x00"
    assert Mask({"mail": "a-secret-value"}).of(text, MOST) == text
    assert Mask({}).of(text, MOST) == text
