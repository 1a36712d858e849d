from __future__ import annotations

from datetime import UTC, datetime

import pytest

from atoll.errors import InvalidSpecError
from atoll.types.internal import schedule_of


@pytest.mark.parametrize(
    ("text", "after", "first"),
    [
        ("0 3 * * *", "2026-01-31T03:00", "2026-02-01T03:00"),
        ("0 3 * * *", "2026-01-31T02:59", "2026-01-31T03:00"),
        ("*/15 * * * *", "2026-12-31T23:50", "2027-01-01T00:00"),
        ("5-10/5,50 8-9 * * *", "2026-03-01T08:11", "2026-03-01T08:50"),
        ("0 0 29 feb *", "2026-03-01T00:00", "2028-02-29T00:00"),
        ("0 0 29 2 *", "2096-03-01T00:00", "2104-02-29T00:00"),
        ("30 9 * * mon-fri", "2026-11-27T09:30", "2026-11-30T09:30"),
        ("0 0 * * 7", "2026-11-25T00:00", "2026-11-29T00:00"),
        ("0 0 13 * fri", "2026-11-25T00:00", "2026-11-27T00:00"),
        ("0 0 13 * *", "2026-11-25T00:00", "2026-12-13T00:00"),
        ("10/20 * * * *", "2026-01-01T00:11", "2026-01-01T00:30"),
        ("0 0 L * *", "2026-02-01T00:00", "2026-02-28T00:00"),
        ("0 0 * * mon#1", "2026-11-25T00:00", "2026-12-07T00:00"),
    ],
)
def test_the_next_time_of_a_schedule(text: str, after: str, first: str) -> None:
    begin = datetime.fromisoformat(after).replace(tzinfo=UTC).timestamp()
    found = datetime.fromtimestamp(schedule_of(text).after(begin), UTC)
    assert found.isoformat(timespec="minutes") == f"{first}+00:00"


def test_a_length_of_time_is_a_schedule_too() -> None:
    assert schedule_of("Every 10m").after(1000.5) == 1600.5


@pytest.mark.parametrize(
    "text",
    [
        "",
        "* * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "5-1 * * * *",
        "*/0 * * * *",
        "*-5 * * * *",
        "a * * * *",
        "1,,2 * * * *",
        "0 0 30 2 *",
        "every 0s",
        "every day",
        "99999999999999999999 * * * *",
        "0 0 0 3 * *",
        "0 0 */3 2 mon#5",
        pytest.param("9" * 5000 + " * * * *", id="many digits"),
    ],
)
def test_what_is_no_schedule_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError):
        schedule_of(text)


def test_the_field_that_is_wrong_is_named_with_what_it_may_be() -> None:
    with pytest.raises(InvalidSpecError, match="'0 24 \\* \\* \\*' is not a schedule: Bad hour") as raised:
        schedule_of("0 24 * * *")
    assert "hour (0-23)" in str(raised.value.hint)
