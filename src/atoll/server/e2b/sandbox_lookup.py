"""Finds sandboxes by their id within the team that asks. Volumes have the names that clients use."""

from __future__ import annotations

import re
from collections import OrderedDict

import msgspec

from atoll.errors import SandboxNotFoundError
from atoll.sdk import AsyncSandbox, AsyncVolumes
from atoll.server.e2b.answers import Refusal
from atoll.types import SandboxInfo
from atoll.types.internal import BUILD_ATTRIBUTE

_ID = re.compile(r"[a-z][a-z0-9]{19}")
_SHOWN = 64
_KEPT = 10_000


class SandboxLookup:
    """Looks sandboxes up, and remembers the teams of the latest ones, because an id is never used again."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, SandboxInfo] = OrderedDict()

    async def look(self, ref: str, team: str) -> SandboxInfo:
        """Return the current state of a team's sandbox, by its id or by the ``ID-CLIENT`` of old clients.

        Raises:
            Refusal: The team has no sandbox with that id (404).
        """
        sandbox_id = _id_of(ref)
        try:
            info = await AsyncSandbox.get(sandbox_id)
        except SandboxNotFoundError:
            self._known.pop(sandbox_id, None)
            raise missing(ref) from None
        # the supervisor accepts names too, and a name may look like an id
        if info.team != team or info.sandbox_id != sandbox_id or info.state == "killed":
            raise missing(ref)
        self._known[sandbox_id] = msgspec.structs.replace(info, env={}, metadata={})
        if len(self._known) > _KEPT:
            self._known.popitem(last=False)
        return (await _naming([info], team))[0]

    async def find(self, ref: str, team: str) -> SandboxInfo:
        """Return a sandbox of the team, with reliable constant properties only.

        It may have been killed since.

        Raises:
            Refusal: The team has no sandbox with that id (404).
        """
        known = self._known.get(_id_of(ref))
        if known is None:
            return await self.look(ref, team)
        if known.team != team:
            raise missing(ref)
        return known


def missing(ref: str) -> Refusal:
    """Return the refusal for a missing sandbox. Another team's sandbox gets the same refusal."""
    return Refusal(404, f"Sandbox \"{ref[:_SHOWN]}\" doesn't exist or you don't have access to it")


async def all_of(team: str) -> list[SandboxInfo]:
    """Return every sandbox of the team, oldest first, except those in which templates are built."""
    infos = [info async for info in AsyncSandbox.list(team=team) if BUILD_ATTRIBUTE not in info.attributes]
    return await _naming(infos, team)


def _id_of(ref: str) -> str:
    sandbox_id = ref.partition("-")[0]
    if not _ID.fullmatch(sandbox_id):
        raise missing(ref)
    return sandbox_id


async def _naming(infos: list[SandboxInfo], team: str) -> list[SandboxInfo]:
    if not any(info.volumes for info in infos):
        return infos
    names = {volume.volume_id: volume.name for volume in await AsyncVolumes.list(team=team)}
    return [
        msgspec.structs.replace(
            info,
            volumes={
                path: msgspec.structs.replace(mount, volume=names.get(mount.volume, mount.volume))
                for path, mount in info.volumes.items()
            },
        )
        for info in infos
    ]
