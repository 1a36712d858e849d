from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Quotas


@pytest.mark.parametrize(
    ("quotas", "told"),
    [
        (
            Quotas(running=1 << 80),
            "the quota running is 1208925819614629174706176 (give a whole number, 0 to ",
        ),
        (Quotas(disk_mib=1.5), "the quota disk_mib is 1.5 (give a whole number, 0 to "),  # type: ignore[arg-type]
        (Quotas(vcpus=-1), "the quota vcpus is -1 (give 0 to 1,000,000,000, or None for no quota)"),
        (Quotas(ttl_s=float("inf")), "the quota ttl_s is inf (give 0 to "),
    ],
)
def test_a_quota_that_makes_no_sense_is_refused_with_those_that_do(quotas: Quotas, told: str) -> None:
    with pytest.raises(InvalidSpecError) as raised:
        quotas.check()
    assert str(raised.value).startswith(told)


def test_a_quota_may_be_nothing_and_a_part_of_a_processor() -> None:
    quotas = Quotas(running=0, vcpus=0.5, ttl_s=0.5)
    assert quotas.check() is quotas
