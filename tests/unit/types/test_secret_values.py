from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.types.internal import check_secret_value
from atoll.types.secrets import SECRET_BYTES_MOST


@pytest.mark.parametrize("value", ["k", "ü" * 100, "with spaces and \t tabs", "x" * SECRET_BYTES_MOST])
def test_a_value_of_one_line_is_returned_as_it_is(value: str) -> None:
    assert check_secret_value(value) == value


@pytest.mark.parametrize(
    "value, said",
    [
        (b"bytes", "is of type bytes"),
        (None, "is of type NoneType"),
        ("hidden\ud800", "is not valid UTF-8"),
        ("", "is empty"),
        ("h" * (SECRET_BYTES_MOST + 1), f"has {SECRET_BYTES_MOST + 1} bytes"),
        ("hidden\nX-Other: header", "has a line break or a NUL"),
        ("hidden\r", "has a line break or a NUL"),
        ("hidden\0", "has a line break or a NUL"),
    ],
)
def test_what_would_not_be_sent_as_it_is_is_refused_without_showing_it(value: object, said: str) -> None:
    with pytest.raises(InvalidSpecError, match=said) as caught:
        check_secret_value(value)
    assert "hidden" not in str(caught.value)
