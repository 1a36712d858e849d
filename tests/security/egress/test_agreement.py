"""Whatever the policy and the request: the wire does what the test of a policy says."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from tests.security.egress.agreement import agree, cases
from tests.security.egress.ground import Yard


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    made = Yard(tmp_path_factory.mktemp("yard"), agree)
    try:
        yield made
    finally:
        left = made.close()
    assert not left, left


@settings(
    max_examples=100,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
@given(case=cases())
def test_the_wire_does_what_the_test_of_a_policy_says(yard: Yard, case: dict[str, Any]) -> None:
    failure = yard.do(json.dumps(case))
    assert not failure, failure
