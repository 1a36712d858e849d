"""The teams that share a home."""

from __future__ import annotations

import contextlib

from atoll.policy import ceiling_of, check_ceiling
from atoll.protocol import CeilingRequest, TeamRequest
from atoll.sdk._async.api import LONG_S, AsyncApi, ref
from atoll.types import EgressPolicy, Quotas, TeamInfo, TeamUse
from atoll.types.internal import check_kind

_Teams = list[TeamInfo]


class AsyncTeams:
    """Makes and lists the teams that share a server, and sets their quotas and egress ceilings.

    Sandboxes without a team have no quotas.
    """

    @staticmethod
    async def create(name: str, quotas: Quotas | None = None) -> TeamInfo:
        """Make a team.

        Args:
            name: 1 to 32 lowercase letters, digits and dashes; the team is known by this name from now on.
            quotas: How much the team may use. None means no limits.

        Raises:
            InvalidSpecError: The name or a quota is invalid.
            NameTakenError: Another team has that name.
        """
        quotas = Quotas() if quotas is None else quotas
        check_kind("quotas", quotas, Quotas)
        body = TeamRequest(name=name, quotas=quotas.check())
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("POST", "/v1/teams", TeamInfo, body)

    @staticmethod
    async def list() -> _Teams:
        """List the teams of the home, oldest first."""
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", "/v1/teams", list[TeamInfo])

    @staticmethod
    async def get(name: str) -> TeamInfo:
        """Return the info of a team.

        Raises:
            TeamNotFoundError: No team has that name.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/teams/{ref(name)}", TeamInfo)

    @staticmethod
    async def use(name: str) -> TeamUse:
        """Return the team's use now.

        Its disk use is measured again if the last figure is older than a few seconds.

        Raises:
            TeamNotFoundError: No team has that name.
        """
        with contextlib.closing(AsyncApi()) as api:
            return await api.call("GET", f"/v1/teams/{ref(name)}/use", TeamUse, timeout_s=LONG_S)

    @staticmethod
    async def set_quotas(name: str, quotas: Quotas) -> TeamInfo:
        """Replace a team's quotas. The team keeps what it uses beyond them, but gets no more.

        Raises:
            TeamNotFoundError: No team has that name.
            InvalidSpecError: A quota is invalid.
        """
        check_kind("quotas", quotas, Quotas)
        with contextlib.closing(AsyncApi()) as api:
            path = f"/v1/teams/{ref(name)}/quotas"
            return await api.call("PUT", path, TeamInfo, quotas.check(), repeatable=True)

    @staticmethod
    async def set_ceiling(name: str, policy: EgressPolicy | None) -> TeamInfo:
        """Set the most that a team's sandboxes may reach, whatever their own policies say.

        A request must pass both. The ceiling applies at once, also for open connections; sandboxes that sleep
        wake under it.

        Args:
            policy: A preset's name, or a policy whose rules allow, deny or unplug. None is no ceiling.

        Raises:
            TeamNotFoundError: No team has that name.
            InvalidSpecError: A rule is invalid or can never match, or the policy observes, changes or limits
                requests, or has a proxy.
            UnsupportedError: This host cannot enforce it.
        """
        if policy is not None:
            check_ceiling(ceiling_of(policy))
        with contextlib.closing(AsyncApi()) as api:
            path = f"/v1/teams/{ref(name)}/ceiling"
            body = CeilingRequest(ceiling=policy)
            return await api.call("PUT", path, TeamInfo, body, repeatable=True)

    @staticmethod
    async def delete(name: str) -> None:
        """Forget a team, its keys and its secrets. The keys become invalid.

        Raises:
            TeamNotFoundError: No team has that name.
            InUseError: The team owns sandboxes, snapshots, volumes or templates.
        """
        with contextlib.closing(AsyncApi()) as api:
            await api.delete(f"/v1/teams/{ref(name)}")
