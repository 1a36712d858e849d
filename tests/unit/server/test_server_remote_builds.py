"""What clients on other machines may build, before anything is built."""

from __future__ import annotations

import msgspec
import pytest

from atoll.errors import InvalidSpecError
from atoll.server.remote.build_specs import build_spec, uploads_of
from atoll.types import CopyStep, Limits, RunStep, StageSpec, TemplateSpec

DIGEST = "0123456789abcdef" * 4


def test_only_the_operator_s_images_are_trusted() -> None:
    table = {"corp.example/": "10.0.0.1/"}

    def trust(name: str | None) -> tuple[str | None, bool, bool]:
        wanted = TemplateSpec(image=name, trusted_image=True, public_image=False)
        stage = StageSpec(image=name, trusted_image=True)
        spec = build_spec(msgspec.structs.replace(wanted, stages={"a": stage}), Limits(), table)
        staged = spec.stages["a"]
        same = (spec.image, spec.trusted_image, spec.public_image)
        assert (staged.image, staged.trusted_image, staged.public_image) == same
        return spec.image, spec.trusted_image, spec.public_image

    assert trust("corp.example/a:1") == ("10.0.0.1/a:1", True, False)
    assert trust("base") == ("base", True, False)
    for name in ("10.0.0.1/a:1", "ubuntu:22.04", None):
        assert trust(name) == (name, False, True)


def test_the_limits_are_those_that_the_build_was_made_with() -> None:
    asked = TemplateSpec(limits=Limits(vcpus=64), steps=[RunStep(command="true")])
    assert build_spec(asked, Limits(vcpus=1), {}).limits == Limits(vcpus=1)


@pytest.mark.parametrize("name", ["/etc", ".", "a/../b", "-x", f"sha256-{'0' * 64}", "a b", "é", ""])
def test_what_is_no_name_of_an_image_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not the name of an image"):
        build_spec(TemplateSpec(image=name), Limits(), {})
    with pytest.raises(InvalidSpecError, match="is not the name of an image"):
        build_spec(TemplateSpec(stages={"a": StageSpec(image=name)}), Limits(), {})


def test_files_come_from_uploads_alone() -> None:
    sent = CopyStep(sources=["a"], target="/", archive=DIGEST)
    here = CopyStep(sources=["/etc/passwd"], target="/")
    staged = CopyStep(sources=["/a"], target="/", stage="a")
    assert uploads_of(TemplateSpec(prepare=[sent], steps=[RunStep(command="true"), staged])) == {DIGEST}
    assert uploads_of(TemplateSpec(stages={"a": StageSpec(steps=[sent])})) == {DIGEST}
    for spec in (
        TemplateSpec(steps=[sent, here]),
        TemplateSpec(prepare=[here]),
        TemplateSpec(stages={"a": StageSpec(steps=[here])}),
    ):
        with pytest.raises(InvalidSpecError, match="no context directory"):
            build_spec(spec, Limits(), {})
