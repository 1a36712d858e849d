"""Checks where volumes may be mounted in a sandbox."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping

from atoll.errors import InvalidSpecError

MOST = 16
_LONGEST = 1024
# The guest's kernel and agent use these paths; a mount that hides them would end the sandbox.
_KEPT = ("/proc", "/sys", "/dev", "/run/atoll", "/.atoll")


def check_mountpoints(volumes: Mapping[str, object]) -> None:
    """Refuse paths where a volume cannot be mounted.

    Raises:
        InvalidSpecError: A path is not absolute or not plain, hides files that the sandbox needs, or is in
            another.
    """
    if len(volumes) > MOST:
        raise InvalidSpecError(f"{len(volumes)} volumes are too many", hint=f"give at most {MOST}")
    for path in volumes:
        _check_one(path)
        if outer := _outer(path, volumes):
            raise InvalidSpecError(
                f"the volume at {path!r} would lie inside the one at {outer!r}",
                hint="mount them beside each other",
            )


def _check_one(path: str) -> None:
    plain = path.startswith("/") and posixpath.normpath(path) == path and not path.startswith("//")
    if not plain or not path.isprintable() or len(path.encode()) > _LONGEST:
        raise InvalidSpecError(
            f"{path!r} is not a path for a volume", hint="give an absolute path without '.', '..' and '//'"
        )
    if path == "/" or _outer(path, _KEPT) or path in _KEPT or _inner(path, _KEPT):
        raise InvalidSpecError(
            f"a volume at {path!r} would hide what the sandbox needs",
            hint="use another path, like /data or /mnt/data",
        )


def _outer(path: str, others: Iterable[str]) -> str | None:
    return next((other for other in others if path.startswith(f"{other}/")), None)


def _inner(path: str, others: Iterable[str]) -> str | None:
    return next((other for other in others if other.startswith(f"{path}/")), None)
