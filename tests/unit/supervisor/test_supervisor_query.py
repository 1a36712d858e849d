"""Numbers in the query of a request have bounds."""

from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.supervisor.api.query import unix_time, whole_number


@pytest.mark.parametrize(
    "text", ["9" * 24, "9" * 5000, str(2**53 + 1), "-1", "+1", " 1", "1_0", "1.5", "\u00b2", ""]
)
def test_what_is_no_number_that_anybody_needs_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match=r"^offset is '.{0,40}', which"):
        whole_number(text, "offset")


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400", "-1e17", "now", ""])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="^start is"):
        unix_time(text, "start")


def test_the_largest_are_taken() -> None:
    assert whole_number(str(2**53), "offset") == 2**53
    assert (unix_time("-1.5", "start"), unix_time(None, "start")) == (-1.5, None)
