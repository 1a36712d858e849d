# Made by scripts/unasync.py from sdk/_async/keys.py: do not edit.
"""The API keys with which teams use a server."""

from __future__ import annotations

import contextlib

from atoll.errors import InvalidSpecError
from atoll.protocol import KeyCheck, KeyRequest
from atoll.sdk._sync.api import Api, ref
from atoll.types import KeyInfo, NewKey, TeamInfo
from atoll.types.internal import check_number

_Keys = list[KeyInfo]


class Keys:
    """Makes, lists, checks and revokes API keys.

    A key gives the rights of its team. It is shown only when it is made; only its hash is stored.
    """

    @staticmethod
    def create(team: str, name: str, expires_in_s: float | None = None) -> NewKey:
        """Make a key.

        Args:
            team: The team that the key belongs to.
            name: A name for people.
            expires_in_s: Seconds that the key is valid. None means until it is revoked.

        Raises:
            TeamNotFoundError: There is no such team.
            InvalidSpecError: The name or the time is invalid.
        """
        if expires_in_s is not None:
            # JSON has no infinity and would send null, which means a key without an end
            hint = "give seconds, or None for a key that does not expire"
            check_number("expires_in_s", expires_in_s, hint=hint)
            if expires_in_s == float("inf"):
                raise InvalidSpecError("expires_in_s is inf", hint=hint)
        body = KeyRequest(team=team, name=name, expires_in_s=expires_in_s)
        with contextlib.closing(Api()) as api:
            return api.call("POST", "/v1/keys", NewKey, body)

    @staticmethod
    def list(team: str | None = None) -> _Keys:
        """List the keys of the home, or of one team, oldest first. Ended keys are listed for 30 days.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        query = "" if team is None else f"?team={ref(team)}"
        with contextlib.closing(Api()) as api:
            return api.call("GET", f"/v1/keys{query}", list[KeyInfo])

    @staticmethod
    def revoke(key_id: str) -> KeyInfo:
        """Make a key invalid: at once here, and within 5 seconds at a server.

        Raises:
            KeyNotFoundError: No key has that id.
        """
        with contextlib.closing(Api()) as api:
            path = f"/v1/keys/{ref(key_id)}"
            return api.call("DELETE", path, KeyInfo, repeatable=True)

    @staticmethod
    def check(key: str) -> TeamInfo:
        """Return the team that a key belongs to, and how much that team may use.

        Raises:
            DeniedError: The key is wrong, revoked or expired.
        """
        with contextlib.closing(Api()) as api:
            return api.call("POST", "/v1/keys/check", TeamInfo, KeyCheck(key=key), repeatable=True)
