from __future__ import annotations

import pytest

from atoll.errors import AtollError, ImageNotFoundError, ImagePullError
from atoll.images.near import has_registry, misspelt, names_near, with_near_names, with_near_templates

HERE = ["python:3.12", "node:latest", "ghost.example/team/tool:1", "sha256-" + "0" * 64]
FAILED = "the image {} could not be pulled: no such host"


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("bse:latest", ["base"]),
        ("python:3.21", ["python:3.12"]),
        ("python:latest", ["python:3.12"]),
        ("nod:latest", ["node"]),
        ("pyhton:latest", ["python"]),
        ("pyhton:3.13", ["python:3.13", "python:3.12"]),
        ("base:latest", []),
        ("something-else:1", []),
    ],
)
def test_a_name_that_does_not_exist_is_near_to_what_is_here(name: str, near: list[str]) -> None:
    assert names_near(name, HERE) == near


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("bse:latest", ["base"]),
        ("pyhton:latest", ["python"]),
        ("bash:latest", []),
        ("python:3.13", []),
        ("ghost.example/bse:1", []),
        ("something-else:1", []),
    ],
)
def test_a_name_that_looks_misspelt_is_told_from_a_common_one_and_from_another_tag(
    name: str, near: list[str]
) -> None:
    assert misspelt(name, HERE) == near


def test_a_registry_is_told_from_a_user_of_docker_hub() -> None:
    for name in ("ghost.example/tool:1", "localhost/tool:1", "ghost:5000/tool:1", "[::1]/tool:1"):
        assert has_registry(name)
    for name in ("tool:1", "team/tool:1", "python:3.12"):
        assert not has_registry(name)


@pytest.mark.parametrize("kind", [ImageNotFoundError, ImagePullError])
def test_an_error_says_what_may_be_meant_and_keeps_its_class(kind: type[AtollError]) -> None:
    error = kind(FAILED.format("bse:latest"), hint="try again", retryable=True)
    told = with_near_names(error, "bse:latest", HERE)
    assert type(told) is kind and told.retryable
    assert (
        told.message == "there is no image bse:latest here, and bse:latest could not be pulled: no such host"
    )
    assert str(told.hint).startswith("did you mean `base`? a name without a registry is of Docker Hub; ")
    assert "`ghost.example/team/tool:1`" in str(told.hint)


def test_without_anything_near_the_remedy_stays() -> None:
    error = ImagePullError(FAILED.format("other:1"), hint="try again")
    assert str(with_near_names(error, "other:1", HERE).hint).startswith(
        "try again; a name without a registry"
    )


def test_an_error_about_a_named_registry_stays_as_it_is() -> None:
    error = ImageNotFoundError(FAILED.format("ghost.example/bse:1"), hint="check the name")
    assert with_near_names(error, "ghost.example/bse:1", HERE) is error


def test_an_error_about_a_newer_version_of_what_is_here_stays_as_it_is() -> None:
    error = ImagePullError(FAILED.format("python:3.12"), hint="try again")
    assert with_near_names(error, "python:3.12", HERE) is error


def test_an_error_names_a_template_that_may_be_meant() -> None:
    error = ImageNotFoundError("there is no image", hint="check the name", retryable=True)
    told = with_near_templates(error, "code-interpreter-v2", ["code-interpreter-v1", "web"])
    assert type(told) is ImageNotFoundError and told.retryable
    assert told.hint == "did you mean the template `code-interpreter-v1`? check the name"
    assert with_near_templates(error, "other:1", ["web"]) is error
    assert with_near_templates(error, "ghost.example/web:1", ["web"]) is error
