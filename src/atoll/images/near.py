"""Which image may be meant by a name that no registry knows. Nothing here touches the host."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from atoll.errors import AtollError
from atoll.images.recipe import BASE
from atoll.images.reference import is_digest

_LATEST = ":latest"
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
    """Return which names, of those known and ``base``, may be meant by one that does not exist.

    The closest comes first: ``base`` for ``bse``, and ``python:3.12`` for ``python:3.21``.
    """
    shown = [_short(each) for each in [BASE, *known] if not is_digest(each)]
    wanted = _short(name)
    return [near for near in get_close_matches(wanted, dict.fromkeys(shown), _MOST, _CLOSE) if near != wanted]


def with_near_names(error: AtollError, name: str, known: Iterable[str]) -> AtollError:
    """Return an error about an image that no registry gave, with the names that may be meant.

    Args:
        error: What was said of the registry.
        name: The image that was asked for.
        known: The images that are here.
    """
    known = [*known]
    if has_registry(name) or name in known:
        return error
    near = " or ".join(f"`{each}`" for each in names_near(name, known))
    first = f"did you mean {near}?" if near else error.remedy
    return type(error)(
        f"there is no image {name} here, and {error.message.removeprefix('the image ')}",
        hint=f"{first} {_REGISTRIES}" if near else f"{first}; {_REGISTRIES}" if first else _REGISTRIES,
        retryable=error.retryable,
    )


def _short(name: str) -> str:
    return name.removesuffix(_LATEST)
