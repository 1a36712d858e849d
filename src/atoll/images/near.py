"""Guesses the image behind a name that no registry knows. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from difflib import get_close_matches

from atoll.errors import AtollError
from atoll.images.recipe import BASE
from atoll.images.reference import is_digest, repository

_LATEST = ":latest"
# The most popular images: a name close to one of these is more often a misspelling than meant.
_COMMON = (
    *(
        "alpine",
        "archlinux",
        "bash",
        "buildpack-deps",
        "busybox",
        "centos",
        "debian",
        "eclipse-temurin",
        "fedora",
    ),
    *(
        "gcc",
        "golang",
        "httpd",
        "mongo",
        "mysql",
        "nginx",
        "node",
        "openjdk",
        "perl",
        "php",
        "postgres",
        "python",
    ),
    *("redis", "ruby", "rust", "rockylinux", "swift", "ubuntu"),
)
_MOST = 3
_CLOSE = 0.7
_REGISTRIES = (
    "a name without a registry is of Docker Hub; one of another registry is like `ghost.example/team/tool:1`"
)


def has_registry(name: str) -> bool:
    """Whether a reference says which registry it is of. Without one it is of Docker Hub."""
    first, slash, _ = name.partition("/")
    return bool(slash) and (first == "localhost" or any(mark in first for mark in ".:["))


def names_near(name: str, known: Iterable[str]) -> list[str]:
    """Return the known names, ``base`` among them, that a missing name may stand for.

    The closest comes first: ``base`` for ``bse``, and ``python:3.12`` for ``python:3.21``. This also corrects
    a popular repository: ``python:3.12`` for ``pyhton:3.12``.
    """
    shown = [_short(each) for each in [BASE, *known] if not is_digest(each)]
    wanted = _short(name)
    stem = repository(name)
    if stem not in (BASE, *_COMMON):
        shown += [wanted.replace(stem, each, 1) for each in get_close_matches(stem, _COMMON, 1, _CLOSE)]
    return [near for near in get_close_matches(wanted, dict.fromkeys(shown), _MOST, _CLOSE) if near != wanted]


def misspelt(name: str, known: Iterable[str]) -> list[str]:
    """Return the names that a misspelt-looking name may stand for, before any registry is asked.

    A common name does not look misspelt, nor does another tag of an image that is here.
    """
    known, stem = [*known], repository(name)
    if has_registry(name) or stem in (BASE, *_COMMON) or stem in map(repository, known):
        return []
    return names_near(name, known)


def with_near_names(error: AtollError, name: str, known: Iterable[str]) -> AtollError:
    """Return the error about an image that no registry has, with similar names.

    Args:
        error: The error from the registry.
        name: The image that was asked for.
        known: The images that are here.
    """
    known = [*known]
    if has_registry(name) or name in known:
        return error
    near = did_you_mean(names_near(name, known))
    first = near or error.remedy
    return type(error)(
        f"there is no image {name} here, and {error.message.removeprefix('the image ')}",
        hint=f"{first} {_REGISTRIES}" if near else f"{first}; {_REGISTRIES}" if first else _REGISTRIES,
        retryable=error.retryable,
    )


def with_near_templates(error: AtollError, name: str, templates: Collection[str]) -> AtollError:
    """Return the error about an image that no registry has, with similar names of templates.

    Args:
        error: The error about the image.
        name: The image that was asked for.
        templates: The names of the templates that the caller may use.
    """
    near = [] if has_registry(name) else get_close_matches(repository(name), templates, _MOST, _CLOSE)
    if not near:
        return error
    meant = " or ".join(f"`{each}`" for each in near)
    hint = f"did you mean the template {meant}? {error.remedy or ''}".rstrip()
    return type(error)(error.message, hint=hint, retryable=error.retryable)


def did_you_mean(names: Collection[str]) -> str:
    """Return a question for the names that may be meant; empty for none."""
    return f"did you mean {' or '.join(f'`{each}`' for each in names)}?" if names else ""


def _short(name: str) -> str:
    return name.removesuffix(_LATEST)
