"""A request of the remote SDK on its way to the supervisor."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from atoll.errors import InvalidSpecError, SandboxNotFoundError, SnapshotNotFoundError, TemplateNotFoundError
from atoll.sdk import AsyncSandbox, AsyncSnapshots, AsyncTemplates
from atoll.server.e2b.destinations import Range
from atoll.types import BuildInfo, SandboxInfo, SnapshotInfo, TeamInfo
from atoll.types.internal import as_json, from_json

_Value = TypeVar("_Value")
_SHOWN = 64
_REF_MOST = 255


@dataclass
class Asked:
    """A client's request. The rules of its operation check it, and set the team in it.

    Args:
        team: The client's team.
        params: The parts of the path, by name.
        query: The query part.
        body: The body; None if it passes on as it arrives.
        opened: Ranges that are not public, which clients may allow to their sandboxes.
    """

    team: TeamInfo
    params: dict[str, str]
    query: dict[str, list[str]]
    body: bytes | None
    opened: Sequence[Range] = ()

    def read(self, kind: type[_Value]) -> _Value:
        """Return the body as ``kind``.

        Raises:
            InvalidSpecError: It is something else.
        """
        try:
            return from_json(self.body or b"{}", kind)
        except msgspec.DecodeError as error:
            raise InvalidSpecError(f"the body is invalid: {error}") from None

    def write(self, value: object) -> None:
        """Replace the body."""
        self.body = as_json(value)

    def token(self, given: str) -> str:
        """Return the supervisor's name for a request that the client named: no team can name another's."""
        return hashlib.sha256(f"{self.team.name}\0{given}".encode()).hexdigest()[:32]

    async def sandbox(self, ref: str) -> SandboxInfo:
        """Return the team's sandbox with this id or name.

        Raises:
            SandboxNotFoundError: There is none. Another team's sandbox gets the same error.
        """
        try:
            info = await AsyncSandbox.get(ref) if _may_name(ref) else None
        except SandboxNotFoundError:
            info = None
        if info is None or info.team != self.team.name:
            raise SandboxNotFoundError(
                f"there is no sandbox {ref[:_SHOWN]!r}", hint="`atoll ls` lists the sandboxes"
            )
        return info

    async def snapshot(self, ref: str) -> SnapshotInfo:
        """Return the team's snapshot with this id or name.

        Raises:
            SnapshotNotFoundError: There is none. Another team's snapshot gets the same error.
        """
        try:
            info = await AsyncSnapshots.get(ref) if _may_name(ref) else None
        except SnapshotNotFoundError:
            info = None
        if info is None or info.team != self.team.name:
            raise SnapshotNotFoundError(
                f"there is no snapshot {ref[:_SHOWN]!r}", hint="`atoll snapshot ls` lists them"
            )
        return info

    async def build(self, build_id: str) -> BuildInfo:
        """Return the team's build with this id.

        Raises:
            TemplateNotFoundError: There is none. Another team's build gets the same error.
        """
        try:
            build = await AsyncTemplates.build_info(build_id) if _may_name(build_id) else None
            owner = await AsyncTemplates.get(build.template_id, team=self.team.name) if build else None
        except TemplateNotFoundError:
            build = owner = None
        if build is None or owner is None or owner.team != self.team.name:
            raise TemplateNotFoundError(f"there is no build {build_id[:_SHOWN]!r}")
        return build


def _may_name(ref: str) -> bool:
    """Whether a text can be an id or a name. With a slash it would be another path of the supervisor's."""
    return 0 < len(ref) <= _REF_MOST and "/" not in ref
