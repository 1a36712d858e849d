from __future__ import annotations

import pytest

from atoll.errors import ImagePullError, InvalidSpecError
from atoll.images.reference import directory_name, image_name, is_digest, is_pinned, pinned, repository

HEX = "0123456789abcdef" * 4


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("base", "base"),
        (f"sha256-{HEX}", f"sha256-{HEX}"),
        ("python", "python:latest"),
        ("python:3.12", "python:3.12"),
        (f"tool@sha256:{HEX}", f"tool@sha256:{HEX}"),
        ("ghost.example:5000/team/tool", "ghost.example:5000/team/tool:latest"),
        ("@ants/tool", "@ants/tool:latest"),
        ("@/tool:1", "@/tool:1"),
    ],
)
def test_an_image_is_stored_under_its_whole_reference(text: str, wanted: str) -> None:
    assert image_name(text) == wanted


@pytest.mark.parametrize("text", ["", "Upper", "a b", "a:", "-a", "a//b", "a" * 513, "a@sha256:1"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="does not name an image"):
        image_name(text)


def test_a_digest_is_a_pinned_name() -> None:
    assert is_digest(f"sha256-{HEX}")
    assert is_pinned(f"sha256-{HEX}")
    assert is_pinned(f"tool@sha256:{HEX}")
    assert not is_digest("tool:1")
    assert not is_pinned("tool:1")
    assert pinned("ghost.example/tool:1", f"sha256:{HEX}") == f"ghost.example/tool@sha256:{HEX}"
    assert repository("No Reference") == "No Reference"


def test_a_directory_is_named_after_a_digest_and_nothing_else() -> None:
    assert directory_name(f"sha256:{HEX}") == f"sha256-{HEX}"
    with pytest.raises(ImagePullError, match="is not a digest"):
        directory_name("sha256:../../etc")
