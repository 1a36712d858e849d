"""Names of images as clients give them, and what they stand for here."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.errors import InvalidSpecError

BASE = "base"
_HUB = "docker.io/"
# What E2B's clients start from when nobody says otherwise; not everyone reaches the registry that has them.
DEFAULTS = {
    BASE: BASE,
    "e2bdev/base": BASE,
    "e2bdev/base:latest": BASE,
    "ubuntu:22.04": BASE,
    "ubuntu:latest": BASE,
}


def mapped(reference: str, table: Mapping[str, str]) -> str | None:
    """What an image's name stands for; None where the table says nothing of it.

    A name of the table is replaced as a whole. One that ends with ``/`` or ``:`` is replaced where a name begins with
    it, the longest first: ``docker.io/=mirror.example/`` sends everything there to a mirror.
    """
    known = {**DEFAULTS, **table}
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
    """Whether its registry is the one that is meant where none is named."""
    first, slash, _ = reference.partition("/")
    return (
        not slash or reference.startswith(_HUB) or not ("." in first or ":" in first or first == "localhost")
    )


def table_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """The table that ``FROM=TO`` makes.

    Raises:
        InvalidSpecError: One has no equals sign, or nothing beside it.
    """
    table = {}
    for pair in pairs:
        name, equals, other = pair.partition("=")
        if not (name and equals and other):
            raise InvalidSpecError(f"{pair!r} maps no image", hint="write FROM=TO, like ubuntu:22.04=base")
        table[name] = other
    return table
