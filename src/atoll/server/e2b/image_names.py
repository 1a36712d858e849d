"""Translates clients' names of images to names in this home."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.errors import InvalidSpecError

BASE = "base"
_HUB = "docker.io/"
# The default images of E2B's clients. Not every host can reach the registry that has them.
DEFAULTS = {
    BASE: BASE,
    "e2bdev/base": BASE,
    "e2bdev/base:latest": BASE,
    "ubuntu:22.04": BASE,
    "ubuntu:latest": BASE,
}


def mapped(reference: str, table: Mapping[str, str], defaults: Mapping[str, str] = DEFAULTS) -> str | None:
    """Return the name that an image's name is mapped to, or None if the table does not mention it.

    A name in the table is replaced as a whole. An entry that ends with ``/`` or ``:`` replaces the beginning
    of names, the longest entry first. For example, ``docker.io/=mirror.example/`` redirects that registry to
    a mirror.
    """
    known = {**defaults, **table}
    forms = [reference]
    if _is_of_hub(reference):
        plain = reference.removeprefix(_HUB).removeprefix("library/")
        forms = [plain, reference, _HUB + plain]
    for form in forms:
        if form in known:
            return known[form]
    for form in forms:
        for name in sorted(known, key=len, reverse=True):
            if name.endswith(("/", ":")) and form.startswith(name):
                return known[name] + form.removeprefix(name)
    return None


def _is_of_hub(reference: str) -> bool:
    """Tell whether an image's registry is the default one."""
    first, slash, _ = reference.partition("/")
    return (
        not slash or reference.startswith(_HUB) or not ("." in first or ":" in first or first == "localhost")
    )


def table_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Return the table of ``FROM=TO`` pairs.

    Raises:
        InvalidSpecError: A pair has no equals sign, or nothing beside it.
    """
    table = {}
    for pair in pairs:
        name, equals, other = pair.partition("=")
        if not (name and equals and other):
            raise InvalidSpecError(
                f"{pair!r} is not an image mapping", hint="give FROM=TO, like ubuntu:22.04=base"
            )
        table[name] = other
    return table
