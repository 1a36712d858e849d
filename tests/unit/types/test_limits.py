from __future__ import annotations

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Limits


def test_what_is_given_goes_over_what_was_there() -> None:
    assert Limits(vcpus=2).over(Limits(vcpus=1, memory_mib=512)) == Limits(vcpus=2, memory_mib=512)
    assert Limits().given() == {}


@pytest.mark.parametrize(
    "limits", [Limits(memory_mib=1), Limits(vcpus=-1), Limits(lifetime_s=float("inf")), Limits(files=0)]
)
def test_a_limit_that_no_sandbox_can_live_with_is_refused(limits: Limits) -> None:
    with pytest.raises(InvalidSpecError, match="the limit "):
        limits.check()
