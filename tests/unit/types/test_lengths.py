import pytest

from atoll.errors import InvalidSpecError
from atoll.types.internal import seconds_of


@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [("90", 90), ("1.5", 1.5), (".5", 0.5), ("90s", 90), ("10m", 600), ("2h", 7200), ("1d", 86400), ("0", 0)],
)
def test_a_length_is_seconds_or_a_number_with_its_unit(text: str, wanted_s: float) -> None:
    assert seconds_of(text) == wanted_s


@pytest.mark.parametrize("text", ["", "-1", "1w", "10 m", "m", ".", "1e3", "inf", "nan", "٣"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="not a length of time"):
        seconds_of(text)


def test_a_length_of_more_than_30_years_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="too long"):
        seconds_of("20000d")
