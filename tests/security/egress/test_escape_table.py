"""The escape table: each trick works where a check is off, and fails where it is on."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.security.egress import rows_bodies, rows_lasting, rows_places, rows_requests, rows_tls
from tests.security.egress.ground import Ground, Yard

ROWS = [*rows_requests.ROWS, *rows_tls.ROWS, *rows_bodies.ROWS, *rows_places.ROWS, *rows_lasting.ROWS]


async def _try(ground: Ground, number: str) -> None:
    await ROWS[int(number)].run(ground)


@pytest.fixture(scope="module")
def yard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    made = Yard(tmp_path_factory.mktemp("yard"), _try)
    try:
        yield made
    finally:
        left = made.close()
    assert not left, left


@pytest.mark.parametrize("number", range(len(ROWS)), ids=[row.trick for row in ROWS])
def test_a_trick_works_only_while_its_check_is_off(yard: Yard, number: int) -> None:
    if failure := yard.do(str(number)):
        pytest.fail(failure, pytrace=False)
