"""Names of images as clients give them, and what they stand for here."""

from __future__ import annotations

from collections.abc import Mapping

from atoll.errors import InvalidSpecError

BASE = "base"
# What E2B's clients start from when nobody says otherwise; not everyone reaches the registry that has them.
DEFAULTS = {
    "e2bdev/base": BASE,
    "e2bdev/base:latest": BASE,
    "e2bdev/code-interpreter:latest": BASE,
    "ubuntu:22.04": BASE,
    "ubuntu:latest": BASE,
}


def mapped(reference: str, table: Mapping[str, str]) -> str:
    """What an image's name stands for.

    A name of the table is replaced as a whole. One that ends with ``/`` or ``:`` is replaced where a name begins with
    it, the longest first: ``docker.io/=mirror.example/`` sends everything there to a mirror.
    """
    known = {**DEFAULTS, **table}
    plain = reference.removeprefix("docker.io/").removeprefix("library/")
    for name in (reference, plain):
        if name in known:
            return known[name]
    for name in sorted(known, key=len, reverse=True):
        if name.endswith(("/", ":")):
            for full in (reference, f"docker.io/{plain}"):
                if full.startswith(name):
                    return known[name] + full.removeprefix(name)
    return reference


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
