"""Whose a request is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from atoll.server.answers import Refusal
from atoll.server.tokens import same


@dataclass(frozen=True)
class Team:
    """Who asks."""

    name: str


class Access:
    """Tells whose a request is.

    Args:
        key: The one API key.
    """

    def __init__(self, key: str) -> None:
        self._key = key

    async def team_of(self, headers: Mapping[str, str]) -> Team:
        """The team whose key a request has, in ``X-API-Key`` or ``Authorization: Bearer``.

        Raises:
            Refusal: It has none, or a wrong one (401).
        """
        given = headers.get("x-api-key") or headers.get("authorization", "").removeprefix("Bearer ")
        if not same(given, self._key):
            raise Refusal(401, "Invalid API key")
        return Team("default")
