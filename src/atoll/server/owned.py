"""Sandboxes by their id, within the team that asks. They name their volumes, as clients do."""

from __future__ import annotations

import re

import msgspec

from atoll.errors import SandboxNotFoundError
from atoll.sdk import AsyncSandbox, AsyncVolumes
from atoll.server.answers import Refusal
from atoll.types import SandboxInfo

_ID = re.compile(r"[a-z][a-z0-9]{19}")
_SHOWN = 64
# the attribute of a sandbox in which a template is built
BUILD = "build"


def missing(sandbox_id: str) -> Refusal:
    """What is answered for a sandbox that is not there, or is another team's: always the same."""
    return Refusal(404, f"Sandbox \"{sandbox_id[:_SHOWN]}\" doesn't exist or you don't have access to it")


async def owned(ref: str, team: str) -> SandboxInfo:
    """A sandbox of the team by its id, also as ``ID-CLIENT``, which old clients write.

    Raises:
        Refusal: The team has none with that id (404).
    """
    sandbox_id = ref.partition("-")[0]
    if not _ID.fullmatch(sandbox_id):
        raise missing(ref)
    try:
        info = await AsyncSandbox.get(sandbox_id)
    except SandboxNotFoundError:
        raise missing(ref) from None
    # the supervisor takes names, too, and a name may look like an id
    if info.team != team or info.sandbox_id != sandbox_id or info.state == "killed":
        raise missing(ref)
    return (await _naming([info], team))[0]


async def all_of(team: str) -> list[SandboxInfo]:
    """Every sandbox of the team, oldest first, but those in which templates are built."""
    infos = [info async for info in AsyncSandbox.list(team=team) if BUILD not in info.attributes]
    return await _naming(infos, team)


async def _naming(infos: list[SandboxInfo], team: str) -> list[SandboxInfo]:
    if not any(info.volumes for info in infos):
        return infos
    names = {volume.volume_id: volume.name for volume in await AsyncVolumes.list(team=team)}
    return [
        msgspec.structs.replace(
            info, volumes={path: names.get(volume, volume) for path, volume in info.volumes.items()}
        )
        for info in infos
    ]
