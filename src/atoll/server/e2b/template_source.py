"""Finds the template that a client names for a new sandbox."""

from __future__ import annotations

import re

import msgspec

from atoll.errors import NotFoundError
from atoll.sdk import AsyncTemplates
from atoll.server.e2b.answers import Refusal
from atoll.server.e2b.image_names import BASE
from atoll.toolkits import developer
from atoll.types import Resolved, TemplateSpec

# The names that a template, a snapshot or an image can have, with a namespace, a registry, a tag, a digest.
_REF = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@-]{0,255}")
_SHOWN = 64


class TemplateSource(msgspec.Struct, frozen=True, kw_only=True):
    """The start of a sandbox: a snapshot, or an image if no template has that name."""

    template_id: str
    alias: str | None = None
    image: str | None = None
    snapshot_id: str | None = None


def missing_template(ref: str) -> Refusal:
    """Return the refusal for a template that is missing, or is another team's and not public."""
    return Refusal(404, f"template '{ref[:_SHOWN]}' not found")


async def missing_source(ref: str) -> Refusal:
    """Return the refusal for a name that no sandbox can start from.

    It tells if the operator has a template of that name that is not public, but nothing about other teams'.
    """
    refusal, name = missing_template(ref), ref.partition(":")[0]
    try:
        found = await AsyncTemplates.get(name)
    except NotFoundError:
        return refusal
    if (found.name, found.team, found.public) != (name, None, False):
        return refusal
    return Refusal(
        404, f"{refusal.message}: the operator has it, and shares it with `atoll template publish {name}`"
    )


def missing_tag(name: str, tag: str) -> Refusal:
    """Return the refusal for a template that exists, but without that tag."""
    return Refusal(404, f"tag '{tag[:_SHOWN]}' does not exist for template '{name[:_SHOWN]}'")


async def source_of(ref: str, team: str) -> TemplateSource:
    """Return the origin that a client names as ``NAME``, ``NAME:TAG`` or an id.

    Raises:
        Refusal: The team has no such template (404), or the name is invalid (400).
    """
    if not _REF.fullmatch(ref):
        raise Refusal(400, "templateID is not the name or id of a template")
    try:
        found = await AsyncTemplates.resolve(ref, team)
    except NotFoundError:
        raise await _missing(ref, team) from None
    if found.image == BASE and (fuller := await _developer(team)) is not None:
        return TemplateSource(template_id=fuller.template_id, alias=BASE, snapshot_id=fuller.snapshot_id)
    return TemplateSource(
        template_id=found.template_id, alias=found.name, image=found.image, snapshot_id=found.snapshot_id
    )


async def with_fuller_base(spec: TemplateSpec, team: str) -> TemplateSpec:
    """Return a specification with E2B's fuller ``base`` in place of the image, if the server has it."""
    if spec.image != BASE and not (spec.template == BASE and await _is_image(BASE, team)):
        return spec
    if await _developer(team) is None:
        return spec
    return msgspec.structs.replace(spec, image=None, trusted_image=False, template=developer.NAME)


async def _developer(team: str) -> Resolved | None:
    """Return the operator's template for E2B's ``base``, which has more than the image of that name."""
    try:
        found = await AsyncTemplates.resolve(developer.NAME, team)
    except NotFoundError:
        return None
    return found if found.team is None else None


async def _is_image(ref: str, team: str) -> bool:
    return (await AsyncTemplates.resolve(ref, team)).image is not None


async def _missing(ref: str, team: str) -> Refusal:
    name, _, tag = ref.partition(":")
    if not tag:
        return await missing_source(ref)
    try:
        await AsyncTemplates.get(name, team=team)
    except NotFoundError:
        return await missing_source(ref)
    return missing_tag(name, tag)
