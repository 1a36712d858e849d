from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from atoll.errors import InvalidSpecError
from atoll.types import Lifecycle, Limits, Quotas, SandboxSpec
from atoll.types.internal import as_json, check_number, local_path, path_text, texts_of


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": {"A": 1}}, r"the value of env\['A'\] is of type int \(give a str\)"),
        ({"env": {1: "a"}}, r"the key of env\[1\] is of type int"),
        ({"metadata": {"run": 7}}, r"metadata\['run'\]"),
        ({"on_crash": "x"}, r"on_crash is 'x' \(give 'reboot', 'rollback' or 'stop'\)"),
        (
            {"network": "open"},
            r"network is 'open' \(give 'none', 'packages', 'web-read-only', 'internet', or a Policy ",
        ),
    ],
)
def test_what_cannot_be_meant_is_named_with_the_choices(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidSpecError, match=message):
        SandboxSpec(**given)


def test_a_secret_of_the_wrong_type_is_not_shown() -> None:
    with pytest.raises(InvalidSpecError, match="bytes") as raised:
        SandboxSpec(env={"TOKEN": b"hunter2"})  # type: ignore[dict-item]
    assert "hunter2" not in str(raised.value)


def test_the_end_of_a_lease_is_one_of_three() -> None:
    with pytest.raises(InvalidSpecError, match=r"on_expiry is 'pause' \(give 'kill', 'suspend' or 'stop'\)"):
        Lifecycle(on_expiry="pause").check()  # type: ignore[arg-type]


def test_a_path_is_text_or_a_path_object() -> None:
    assert path_text("a/b") == path_text(PurePosixPath("a/b")) == "a/b"
    for wrong in (b"a", 5, None):
        with pytest.raises(InvalidSpecError, match="not a path in a sandbox"):
            path_text(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", ["60", b"60", None, [], True, float("nan"), 10**400])
def test_what_is_no_number_is_named(wrong: Any) -> None:
    with pytest.raises(InvalidSpecError, match="timeout_s is"):
        check_number("timeout_s", wrong)
    if wrong is not None:
        for made in (Lifecycle(ttl_s=wrong), Limits(vcpus=wrong), Quotas(vcpus=wrong)):
            with pytest.raises(InvalidSpecError, match=" is "):
                made.check()


def test_a_number_may_have_to_be_whole_and_to_have_a_size() -> None:
    check_number("count", 3, least=1, whole=True)
    check_number("count", 3.5, least=1)
    for wrong in (0, 1.0):
        with pytest.raises(InvalidSpecError, match="count is"):
            check_number("count", wrong, least=1, whole=True)


@pytest.mark.parametrize(
    "given",
    [{"name": 5}, {"name": "\udcff"}, {"team": b"a"}, {"env": "A=1"}, {"limits": {}}, {"lifecycle": 60}],
)
def test_a_spec_of_wrong_types_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpecError, match=next(iter(given))):
        SandboxSpec(**given)


def test_a_path_of_this_host_is_text_or_a_path_object() -> None:
    assert local_path("local", "a/b") == local_path("local", Path("a/b")) == Path("a/b")
    for wrong in (b"a", 5, None):
        with pytest.raises(InvalidSpecError, match="local is"):
            local_path("local", wrong)  # type: ignore[arg-type]


def test_what_json_cannot_have_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="an argument cannot be sent"):
        as_json({"a": object()})


@pytest.mark.parametrize("given", [{}, {"ttl_s": 0.0}, {"wake_ttl_s": 1e9, "on_expiry": "suspend"}])
def test_a_lifecycle_that_can_be_meant_is_returned(given: dict[str, Any]) -> None:
    lifecycle = Lifecycle(**given)
    assert lifecycle.check() is lifecycle


def test_a_sandbox_may_say_what_happens_at_a_crash() -> None:
    assert SandboxSpec(on_crash="rollback").on_crash == "rollback"


@pytest.mark.parametrize("wrong", ["v1", b"v1", {"v1": 1}, 7, None, ["v1", 2]])
def test_one_text_and_the_keys_of_a_mapping_are_no_list_of_texts(wrong: Any) -> None:
    with pytest.raises(InvalidSpecError, match="tags"):
        texts_of("tags", wrong)
    assert texts_of("tags", (text for text in ("a", "b"))) == ["a", "b"]
