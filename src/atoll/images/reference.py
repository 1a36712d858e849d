"""Names of images: ``base``, which atoll builds, and references to registries.

This module is pure.
"""

from __future__ import annotations

import re

from atoll.errors import ImagePullError, InvalidSpecError
from atoll.images.recipe import BASE

_LONGEST = 512
_PART = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    r"(?P<repository>"
    r"(?:(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:]+\])(?::[0-9]{1,5})?/)?"
    rf"{_PART}(?:/{_PART})*)"
    r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_OWNED = re.compile(r"@[a-z0-9-]{0,64}/")
_DIGEST = re.compile(r"sha256-[0-9a-f]{64}")


def image_name(text: str) -> str:
    """Return the name that an image is stored under: the reference, with the tag ``latest`` if it has none.

    A prefix ``@TEAM/`` marks an image that belongs to one team, and ``@/`` an image for all teams.

    Raises:
        InvalidSpecError: The text is not a reference.
    """
    if text == BASE or _DIGEST.fullmatch(text):
        return text
    if owned := _OWNED.match(text):
        return owned[0] + image_name(text.removeprefix(owned[0]).removeprefix("@"))
    match = _REFERENCE.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise InvalidSpecError(
            f"{text[:200]!r} does not name an image",
            hint="give `base`, or a reference like `python:3.12`, `ghost.example/team/tool:1` or `tool@sha256:…`",
        )
    return text if match["tag"] or match["digest"] else f"{text}:latest"


def is_digest(name: str) -> bool:
    """Whether a name is the digest of an image in this home."""
    return bool(_DIGEST.fullmatch(name))


def is_pinned(name: str) -> bool:
    """Whether a name can never mean other content than today."""
    return "@sha256:" in name or bool(_DIGEST.fullmatch(name))


def pinned(name: str, digest: str) -> str:
    """Return the reference for which the registry of ``name`` always returns the image ``sha256:…``."""
    return f"{repository(name)}@{digest}"


def repository(name: str) -> str:
    """Return the registry and repository of a reference, as the registry has them."""
    match = _REFERENCE.fullmatch(name)
    return match["repository"] if match else name


def directory_name(digest: str) -> str:
    """Return the name of the directory for the digest ``sha256:…``.

    Raises:
        ImagePullError: The text, from a registry or an image, is not a digest.
    """
    name = digest.replace(":", "-")
    if not _DIGEST.fullmatch(name):
        raise ImagePullError(
            f"{digest[:200]!r} is not a digest", hint="the image is damaged: use another one"
        )
    return name
