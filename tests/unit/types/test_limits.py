from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Limits
from atoll.types.limits import BOUNDS


def test_what_is_given_goes_over_what_was_there() -> None:
    assert Limits(vcpus=2).over(Limits(vcpus=1, memory_mib=512)) == Limits(vcpus=2, memory_mib=512)
    assert Limits().given() == {}


@pytest.mark.parametrize(
    "limits", [Limits(memory_mib=1), Limits(vcpus=-1), Limits(lifetime_s=float("inf")), Limits(files=0)]
)
def test_a_limit_that_no_sandbox_can_live_with_is_refused(limits: Limits) -> None:
    with pytest.raises(InvalidSpecError, match="the limit "):
        limits.check()


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (
            Limits(processes=1 << 40),
            "the limit processes is 1099511627776 (give a whole number, 16 to 1,000,000)",
        ),
        (
            Limits(processes=1 << 80),
            "the limit processes is 1208925819614629174706176 (give a whole number, 16 to ",
        ),
        (Limits(network_mib_s=1e12), "the limit network_mib_s is 1000000000000.0 (give 0.01 to 100,000)"),
        (Limits(vcpus=1e9), "the limit vcpus is 1000000000.0 (give 0.05 to 10,000)"),
        (Limits(memory_mib=10**15), "the limit memory_mib is 1000000000000000 (give a whole number, 64 to "),
        (Limits(files=100.5), "the limit files is 100.5 (give a whole number, 100 to "),  # type: ignore[arg-type]
    ],
)
def test_a_limit_that_no_kernel_takes_is_refused_with_those_that_can_be(limits: Limits, told: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        limits.check()
    assert str(raised.value).startswith(told)


@pytest.mark.parametrize("name", BOUNDS)
def test_both_bounds_of_a_limit_can_be_asked_for(name: str) -> None:
    for bound in BOUNDS[name]:
        assert Limits(**{name: bound}).check().given() == {name: bound}  # type: ignore[arg-type]
