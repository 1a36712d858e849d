"""Dockerfiles that a library names, as templates."""

from __future__ import annotations

import hashlib
from pathlib import Path

import anyio
import msgspec

from atoll import AsyncTemplates


def template_name(dockerfile: Path) -> str:
    """Return the name of the template that is built of a file."""
    return f"dockerfile-{hashlib.sha256(str(dockerfile.absolute()).encode()).hexdigest()[:16]}"


async def build(dockerfile: Path, *, force: bool = False) -> None:
    """Build the template of a Dockerfile, whose directory is the context.

    Steps that were built before are not built again, unless ``force`` is set. The image's own program is not
    started: harnesses run what they need.

    Raises:
        InvalidSpecError: There is no such file, or it is no Dockerfile, or asks for something that templates
            do not support.
        TemplateBuildError: A step failed.
        ImageNotFoundError, ImagePullError: Its image cannot be had.
        NoSpaceError: The disk under the home is full.
    """
    parsed = await anyio.to_thread.run_sync(AsyncTemplates.from_dockerfile, dockerfile)
    await anyio.to_thread.run_sync(parsed.check_sources, dockerfile.parent)
    spec = parsed.spec(force=force)
    spec = msgspec.structs.replace(spec, start_command=None)
    await AsyncTemplates.build(spec, template_name(dockerfile), context=dockerfile.parent)
