"""What a new sandbox starts from, where each kind of it has a setting of its own."""

from __future__ import annotations

from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Boot, ServiceSpec, Snapshot, Template
from atoll.types.internal import one_source


def test_a_sandbox_starts_from_the_one_thing_that_is_given() -> None:
    assert one_source() is None
    assert one_source(image="python:3.12") == "python:3.12"
    assert one_source(template="web:v2") == Template("web:v2")
    assert one_source(snapshot="ready") == Snapshot("ready")


@pytest.mark.parametrize(
    "given",
    [
        {"image": "base", "template": "web"},
        {"image": "base", "snapshot": "ready"},
        {"template": "web", "snapshot": "ready"},
    ],
)
def test_a_sandbox_starts_from_one_thing_only(given: dict[str, str]) -> None:
    with pytest.raises(InvalidSpecError, match=r"exclude each other \(give only one\)"):
        one_source(**given)


@pytest.mark.parametrize("wrong", [None, 5, "web", [ServiceSpec(name="web", command="")]])
def test_what_is_no_list_of_services_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidSpecError):
        Boot(services=wrong)
