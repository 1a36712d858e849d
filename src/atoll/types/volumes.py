"""Volumes: directories that outlive sandboxes and can be mounted in any number of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec
from msgspec import Meta

from atoll.errors import InvalidSpecError
from atoll.types.files import FileKind
from atoll.types.given import check_kind, check_number, check_text
from atoll.types.notebook import html_of

_QUOTA_MOST_MIB = 1_000_000_000
_NO_HOST_PATH = (
    "a sandbox sees no directory of the host: give the name of a volume that `Volumes.create` made, or copy the "
    "directory with `files.upload`"
)


class VolumeMount(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a sandbox mounts a volume.

    Args:
        volume: Its name or id; in what ``info`` returns, its id.
        read_only: Whether every write through this mount fails with EROFS, whoever makes it inside.
    """

    volume: str
    read_only: bool = False

    def __str__(self) -> str:
        return f"{self.volume} (read-only)" if self.read_only else self.volume


def volume_mount(given: str | VolumeMount) -> VolumeMount:
    """Return a mount as given for a new sandbox. A plain name means one that can be written."""
    return VolumeMount(given) if isinstance(given, str) else given


def check_volumes(volumes: Mapping[str, str | VolumeMount]) -> None:
    """Refuse a value that does not map paths to volumes.

    Raises:
        InvalidSpecError: An entry is invalid; the message names it.
    """
    if not isinstance(volumes, Mapping):
        raise InvalidSpecError(
            f"volumes is of type {type(volumes).__name__}", hint="give a mapping of paths to names of volumes"
        )
    for path, given in volumes.items():
        check_text("a path of volumes", path)
        if not isinstance(given, (str, VolumeMount)):
            raise InvalidSpecError(
                f"volumes[{path!r}] is {repr(given)[:80]}", hint="give a volume's name, or a VolumeMount"
            )
        mount = volume_mount(given)
        check_text(f"volumes[{path!r}]", mount.volume)
        check_kind(f"read_only of volumes[{path!r}]", mount.read_only, bool)
        if is_host_path(mount.volume):
            raise InvalidSpecError(
                f"volumes[{path!r}] is {mount.volume[:80]!r}, a path of the host", hint=_NO_HOST_PATH
            )


def is_host_path(volume: str) -> bool:
    """Whether a given volume is meant as a directory of the host, as in Docker."""
    return volume in (".", "..", "~") or "/" in volume or "\\" in volume


def copied_volumes(volumes: Mapping[str, str | VolumeMount] | None) -> dict[str, str | VolumeMount]:
    """Return a mapping of paths to volumes as a dict; empty for None.

    Raises:
        InvalidSpecError: It is not such a mapping.
    """
    if volumes is None:
        return {}
    check_volumes(volumes)
    return dict(volumes)


def check_volume_quota(quota_mib: int | None) -> None:
    """Refuse a value that is no quota of a volume.

    Raises:
        InvalidSpecError: It is not a whole number, or out of range.
    """
    if quota_mib is not None:
        hint = f"give a whole number, 0 to {_QUOTA_MOST_MIB:,}, or None for no quota"
        check_number("quota_mib", quota_mib, least=0, most=_QUOTA_MOST_MIB, whole=True, hint=hint)


class VolumeInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A volume. Its name is unique within its team; a ``team`` of None is no team. Times are Unix seconds.

    A ``quota_mib`` of None is no quota.
    """

    volume_id: str
    name: str
    team: str | None
    created_at: float
    quota_mib: int | None = None

    def _repr_html_(self) -> str:
        return html_of(self)


class VolumeEntry(msgspec.Struct, frozen=True, repr_omit_defaults=True, kw_only=True):
    """A file in a volume, seen without a sandbox. ``path`` begins with ``/``, which is the volume's root.

    ``uid`` and ``gid`` are numbers, since a volume has no user names. ``changed_at`` is when its attributes
    changed.
    """

    name: str
    path: str
    kind: FileKind
    size_bytes: Annotated[int, Meta(ge=0)]
    mode: Annotated[int, Meta(ge=0, le=0o7777)]
    uid: int
    gid: int
    accessed_at: float
    modified_at: float
    changed_at: float
    target: str | None = None
