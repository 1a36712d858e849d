import base64

import pytest

from atoll.policy import Canaries

VALUE = "AKIA-Fake_Key.1"


@pytest.mark.parametrize(
    "form",
    [
        VALUE,
        VALUE.lower(),
        VALUE.encode().hex(),
        VALUE.encode().hex().upper(),
        base64.b32encode(VALUE.encode()).decode().rstrip("="),
        base64.b32hexencode(VALUE.encode()).decode().rstrip("="),
        base64.urlsafe_b64encode(VALUE.encode()).decode().rstrip("="),
    ],
)
def test_a_value_is_found_in_each_form_also_cut_into_labels(form: str) -> None:
    canaries = Canaries(["another one", VALUE])
    assert canaries.in_name(f"a{form}b.example.com")
    assert canaries.in_name(f"{form[:5]}.{form[5:]}.example.com")


def test_other_names_have_none() -> None:
    assert not Canaries([VALUE]).in_name("example.com")
    assert not Canaries().in_name(VALUE)


def test_what_is_too_short_is_not_looked_for() -> None:
    assert not Canaries(["abc"]).in_name("abc.example.com")
