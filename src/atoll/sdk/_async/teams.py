"""The teams that share a home."""

from __future__ import annotations

import contextlib

from atoll.protocol import TeamRequest
from atoll.sdk._async.link import LONG_S, AsyncLink, ref
from atoll.types import Quotas, TeamInfo, TeamUse, check_kind

_Teams = list[TeamInfo]


class AsyncTeams:
    """Who shares a server, and how much each may use. Sandboxes of no team have no quotas."""

    @staticmethod
    async def create(name: str, quotas: Quotas | None = None) -> TeamInfo:
        """Make a team.

        Args:
            name: 1 to 32 lowercase letters, digits and dashes; it is what the team is known by from now on.
            quotas: How much it may use; None is as much as it likes.

        Raises:
            InvalidSpecError: It is no name, or a quota makes no sense.
            NameTakenError: There is a team of that name.
        """
        quotas = Quotas() if quotas is None else quotas
        check_kind("quotas", quotas, Quotas)
        body = TeamRequest(name=name, quotas=quotas.check())
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("POST", "/v1/teams", TeamInfo, body)

    @staticmethod
    async def list() -> _Teams:
        """All teams of the home, oldest first."""
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", "/v1/teams", list[TeamInfo])

    @staticmethod
    async def get(name: str) -> TeamInfo:
        """What is known of a team.

        Raises:
            TeamNotFoundError: There is none of that name.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/teams/{ref(name)}", TeamInfo)

    @staticmethod
    async def use(name: str) -> TeamUse:
        """What a team uses now. Its disk is measured anew when the last measure is older than a few seconds.

        Raises:
            TeamNotFoundError: There is none of that name.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/teams/{ref(name)}/use", TeamUse, timeout_s=LONG_S)

    @staticmethod
    async def set_quotas(name: str, quotas: Quotas) -> TeamInfo:
        """Replace a team's quotas. What it uses beyond them it keeps; it gets no more.

        Raises:
            TeamNotFoundError: There is none of that name.
            InvalidSpecError: A quota makes no sense.
        """
        check_kind("quotas", quotas, Quotas)
        with contextlib.closing(AsyncLink()) as link:
            path = f"/v1/teams/{ref(name)}/quotas"
            return await link.call("PUT", path, TeamInfo, quotas.check(), repeatable=True)

    @staticmethod
    async def delete(name: str) -> None:
        """Forget a team and its keys, which open nothing any more.

        Raises:
            TeamNotFoundError: There is none of that name.
            InUseError: It owns sandboxes, snapshots, volumes or templates.
        """
        with contextlib.closing(AsyncLink()) as link:
            await link.delete(f"/v1/teams/{ref(name)}")
