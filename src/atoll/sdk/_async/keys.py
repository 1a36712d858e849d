"""The keys that teams come with to a server."""

from __future__ import annotations

import contextlib

from atoll.errors import InvalidSpecError
from atoll.protocol import KeyCheck, KeyRequest
from atoll.sdk._async.link import AsyncLink, ref
from atoll.types import KeyInfo, NewKey, TeamInfo, check_number

_Keys = list[KeyInfo]


class AsyncKeys:
    """API keys: who has one is of its team. A key is shown when it is made; only its hash is stored."""

    @staticmethod
    async def create(team: str, name: str, expires_in_s: float | None = None) -> NewKey:
        """Make a key.

        Args:
            team: Whose it is.
            name: For people, to know it by.
            expires_in_s: Seconds that it opens anything; None is until it is revoked.

        Raises:
            TeamNotFoundError: There is no such team.
            InvalidSpecError: The name or the time is no good.
        """
        if expires_in_s is not None:
            # JSON has no infinity and would say None: a key without an end
            hint = "give seconds, or None for a key without an end"
            check_number("expires_in_s", expires_in_s, hint=hint)
            if expires_in_s == float("inf"):
                raise InvalidSpecError("expires_in_s is inf", hint=hint)
        body = KeyRequest(team=team, name=name, expires_in_s=expires_in_s)
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("POST", "/v1/keys", NewKey, body)

    @staticmethod
    async def list(team: str | None = None) -> _Keys:
        """All keys of the home, or a team's, oldest first; those that ended, for 30 days.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        query = "" if team is None else f"?team={ref(team)}"
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("GET", f"/v1/keys{query}", list[KeyInfo])

    @staticmethod
    async def revoke(key_id: str) -> KeyInfo:
        """Have a key open nothing any more: at once here, within 5 seconds at a server.

        Raises:
            KeyNotFoundError: There is none of that id.
        """
        with contextlib.closing(AsyncLink()) as link:
            path = f"/v1/keys/{ref(key_id)}"
            return await link.call("DELETE", path, KeyInfo, repeatable=True)

    @staticmethod
    async def check(key: str) -> TeamInfo:
        """Whose a key is, and how much that team may use.

        Raises:
            DeniedError: Nobody's: it is wrong, revoked or expired.
        """
        with contextlib.closing(AsyncLink()) as link:
            return await link.call("POST", "/v1/keys/check", TeamInfo, KeyCheck(key=key), repeatable=True)
