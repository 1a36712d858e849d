# Made by scripts/unasync.py from sdk/_async/volumes.py: do not edit.
"""The volumes of a home."""

from __future__ import annotations

import contextlib

from atoll.protocol import VolumeQuotaRequest, VolumeRequest
from atoll.sdk._sync.api import Api, ref
from atoll.sdk._sync.volumefiles import VolumeFiles
from atoll.types import VolumeInfo
from atoll.types.internal import check_volume_quota

_Volumes = list[VolumeInfo]


class Volumes:
    """Makes, lists and deletes directories that outlive sandboxes. ``Sandbox.create(volumes=…)`` mounts them.

    A volume has an id, and a name that is unique among those of its team; None means no team. Where a method
    takes either, it looks for a name among those of ``team``.
    """

    @staticmethod
    def create(name: str, *, team: str | None = None, quota_mib: int | None = None) -> VolumeInfo:
        """Make an empty volume.

        Args:
            name: 1 to 128 letters, digits, ``-`` and ``_``.
            team: The team that owns the volume.
            quota_mib: See ``set_quota``.

        Raises:
            InvalidSpecError: The name or the quota is invalid.
            NameTakenError: Another volume of the team has that name.
            NoSpaceError: The disk under the home is full.
        """
        check_volume_quota(quota_mib)
        body = VolumeRequest(name=name, team=team, quota_mib=quota_mib)
        with contextlib.closing(Api()) as api:
            return api.call("POST", "/v1/volumes", VolumeInfo, body)

    @staticmethod
    def list(*, team: str | None = None) -> _Volumes:
        """List the volumes of the home, or of one team, oldest first."""
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/volumes{team_query(team)}", list[VolumeInfo])

    @staticmethod
    def get(id_or_name: str, *, team: str | None = None) -> VolumeInfo:
        """Return the info of a volume.

        Raises:
            VolumeNotFoundError: No volume has that id or name.
        """
        with contextlib.closing(Api()) as api:
            path = f"/v1/volumes/{ref(id_or_name)}{team_query(team)}"
            return api.call("GET", path, VolumeInfo)

    @staticmethod
    def set_quota(id_or_name: str, quota_mib: int | None, *, team: str | None = None) -> VolumeInfo:
        """Replace the quota of a volume: how much disk it may use.

        A volume that is full takes no uploads, and no new sandbox or fork that could write to it. In
        sandboxes that already have it, writes that need more room fail with ENOSPC; files can be removed.

        Args:
            quota_mib: In MiB. None is no quota.

        Raises:
            InvalidSpecError: The quota is invalid.
            VolumeNotFoundError: No volume has that id or name.
        """
        check_volume_quota(quota_mib)
        with contextlib.closing(Api()) as api:
            path = f"/v1/volumes/{ref(id_or_name)}/quota{team_query(team)}"
            body = VolumeQuotaRequest(quota_mib=quota_mib)
            return api.call("PUT", path, VolumeInfo, body, repeatable=True)

    @staticmethod
    def delete(id_or_name: str, *, team: str | None = None) -> None:
        """Erase a volume with all its content.

        Raises:
            VolumeNotFoundError: No volume has that id or name.
            InUseError: A sandbox mounts the volume, asleep or not.
        """
        with contextlib.closing(Api()) as api:
            api.delete(f"/v1/volumes/{ref(id_or_name)}{team_query(team)}")

    @staticmethod
    def files(id_or_name: str, *, team: str | None = None) -> VolumeFiles:
        """Return the files of a volume, for use without a sandbox, even while sandboxes use the volume."""
        return VolumeFiles(id_or_name, team)


def team_query(team: str | None) -> str:
    """Return the part of a URL that names a team."""
    return "" if team is None else f"?team={ref(team)}"
