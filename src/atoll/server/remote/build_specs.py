"""Keeps the builds of clients on other machines away from this host's files and logins."""

from __future__ import annotations

import re
from typing import TypeVar

import msgspec

from atoll.errors import InvalidSpecError
from atoll.server.e2b.image_names import BASE, mapped
from atoll.types import CopyStep, Limits, StageSpec, Step, TemplateSpec

# A name with a slash at its beginning, or with two dots, would be a path of this host.
IMAGE = re.compile(r"(?!.*\.\.)[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,255}")
# Names that the home itself gives images by their content.
_OF_THIS_HOST = re.compile(r"sha256-")
_Spec = TypeVar("_Spec", TemplateSpec, StageSpec)
BUILD_MOST_S = 24 * 3600.0


def build_spec(wanted: TemplateSpec, limits: Limits, table: dict[str, str]) -> TemplateSpec:
    """Return the specification to build for a client's request.

    Args:
        wanted: The client's request.
        limits: The limits of the build.
        table: The operator's names of images.

    Raises:
        InvalidSpecError: ``wanted`` has no valid image name, or copies from no upload.
    """
    for step in _steps(wanted):
        if isinstance(step, CopyStep) and step.archive is None and step.stage is None:
            raise InvalidSpecError("a server has no context directory", hint="copy from an upload")
    return msgspec.structs.replace(
        _of_image(wanted, table),
        limits=limits,
        stages={name: _of_image(stage, table) for name, stage in wanted.stages.items()},
    )


def _of_image(wanted: _Spec, table: dict[str, str]) -> _Spec:
    changes: dict[str, object] = {"trusted_image": False, "public_image": True}
    if wanted.image is not None:
        if not IMAGE.fullmatch(wanted.image) or _OF_THIS_HOST.match(wanted.image):
            raise InvalidSpecError(
                f"{wanted.image[:64]!r} is not the name of an image", hint="name one as its registry does"
            )
        known = BASE if wanted.image == BASE else mapped(wanted.image, table, {})
        if known is not None:
            changes |= {"image": known, "trusted_image": True, "public_image": False}
    return msgspec.structs.replace(wanted, **changes)


def uploads_of(spec: TemplateSpec) -> set[str]:
    """Return the uploads that the template needs."""
    return {step.archive for step in _steps(spec) if isinstance(step, CopyStep) and step.archive is not None}


def _steps(spec: TemplateSpec) -> list[Step]:
    staged = [step for stage in spec.stages.values() for step in stage.steps]
    return [*spec.prepare, *spec.steps, *staged]
