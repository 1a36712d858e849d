"""Finds the team of a request, and whether that team may ask so often."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from atoll.errors import AtollError, DeniedError, VolumeNotFoundError
from atoll.sdk import AsyncKeys, AsyncTeams, AsyncVolumes, for_servers
from atoll.server.auth.access_log import Note, note
from atoll.server.auth.buckets import Buckets, network_of, retry_after
from atoll.server.e2b.answers import Refusal
from atoll.server.tokens import bearer
from atoll.types import TeamInfo
from atoll.types.internal import key_hash, key_id_of

# A revoked key becomes invalid within this time.
_FRESH_S = 5.0
_KNOWN_MOST = 10_000
_KEY = re.compile(r"[!-~]{1,200}")
# The wrong keys that one address may send: this many at once, and a further one each second.
_WRONG_BURST = 100.0
_WRONG_RATE_S = 1.0
_BURST_S = 10.0


@dataclass(frozen=True)
class _Known:
    team: TeamInfo
    at_s: float


async def owner_of(volume_id: str) -> TeamInfo:
    """Return the team that owns a volume.

    Raises:
        NotFoundError: The volume no longer exists, or belongs to no team.
    """
    info = await AsyncVolumes.get(volume_id)
    if info.team is None:
        raise VolumeNotFoundError(f"there is no volume {volume_id!r}")
    return await AsyncTeams.get(info.team)


def caller_name(noted: Note) -> str:
    """Return the caller of a request: the key that it has."""
    return f"key {noted.key_id} of {noted.team}"


class Access:
    """Finds the team that a request belongs to.

    It remembers the team of a key or a volume for 5 seconds. An address that sent too many wrong
    keys is refused for a while. Keys that were right before still work, because other clients may share the
    address.

    Args:
        check: Finds the team of a key.
        clock: Returns monotonic seconds.
        owner: Finds the team of a volume.
    """

    def __init__(
        self,
        check: Callable[[str], Awaitable[TeamInfo]] = AsyncKeys.check,
        clock: Callable[[], float] = time.monotonic,
        owner: Callable[[str], Awaitable[TeamInfo]] = owner_of,
    ) -> None:
        self._check = check
        self._clock = clock
        self._owner = owner
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self._asking: dict[str, asyncio.Task[TeamInfo]] = {}
        self._wrong = Buckets()
        self._requests = Buckets()

    async def team_of(self, headers: Mapping[str, str]) -> TeamInfo:
        """Return the team whose key a request has, in ``X-API-Key`` or ``Authorization: Bearer``.

        Raises:
            Refusal: The key is missing or invalid (401), or the team, or an address with wrong keys, asks too
                often (429).
        """
        key = _given(headers)
        if key is None:
            raise Refusal(401, "Invalid API key")
        team = await self._team(key)
        noted = note()
        noted.team, noted.key_id = team.name, key_id_of(key)
        for_servers.call_for(caller_name(noted))
        self._count(team)
        return team

    async def has_ended(self, headers: Mapping[str, str], most_s: float) -> bool:
        """Tell whether the key of a request that was let in is not valid any more.

        A supervisor that does not answer ends nothing.

        Args:
            headers: The headers of the request.
            most_s: How old the answer may be, in seconds.
        """
        key = _given(headers)
        digest = key_hash(key or "")
        known = self._known.get(digest)
        if key is None or (known is not None and self._clock() - known.at_s < most_s):
            return False
        try:
            await self._asked(digest, lambda: self._check(key))
        except DeniedError:
            self._known.pop(digest, None)
            return True
        except AtollError:
            return False
        return False

    async def team_of_volume(self, volume_id: str) -> TeamInfo:
        """Return the team of a volume whose token a request has.

        Its requests count like those with the team's keys.

        Raises:
            Refusal: The team asks too often (429).
            NotFoundError: The volume no longer exists.
        """
        team = self._fresh(volume_id) or await self._asked(volume_id, lambda: self._owner(volume_id))
        note().team = team.name
        self._count(team)
        return team

    async def _team(self, key: str) -> TeamInfo:
        digest, peer = key_hash(key), network_of(note().peer)
        if team := self._fresh(digest):
            return team
        known = self._known.get(digest)
        # counted before the answer, so that many wrong keys at once do not pass together
        first = known is None and digest not in self._asking
        wait_s = self._wrong.take(peer, _WRONG_RATE_S, _WRONG_BURST, self._clock()) if first else 0.0
        if wait_s:
            raise Refusal(429, "Too many wrong API keys", headers=retry_after(wait_s))
        try:
            team = await self._asked(digest, lambda: self._check(key))
        except DeniedError:
            self._known.pop(digest, None)
            raise Refusal(401, "Invalid API key") from None
        if first:
            self._wrong.give(peer, _WRONG_BURST)
        return team

    def _fresh(self, name: str) -> TeamInfo | None:
        known = self._known.get(name)
        return known.team if known is not None and self._clock() - known.at_s < _FRESH_S else None

    async def _asked(self, name: str, ask: Callable[[], Awaitable[TeamInfo]]) -> TeamInfo:
        """Ask once for all waiting callers. A name is a key's hash or a volume's id, of another length."""
        task = self._asking.get(name)
        if task is None:
            task = self._asking[name] = asyncio.ensure_future(self._ask(name, ask))

            def answered(task: asyncio.Task[TeamInfo]) -> None:
                self._asking.pop(name, None)
                if not task.cancelled():
                    task.exception()  # all callers may have left

            task.add_done_callback(answered)
        return await asyncio.shield(task)

    async def _ask(self, name: str, ask: Callable[[], Awaitable[TeamInfo]]) -> TeamInfo:
        at_s = self._clock()
        team = await ask()
        self._known[name] = _Known(team, at_s)
        self._known.move_to_end(name)
        while len(self._known) > _KNOWN_MOST:
            self._known.popitem(last=False)
        return team

    def _count(self, team: TeamInfo) -> None:
        rate_s = team.quotas.requests_s
        if rate_s is None:
            return
        wait_s = self._requests.take(team.name, rate_s, max(1.0, rate_s * _BURST_S), self._clock())
        if wait_s:
            raise Refusal(429, f"Too many requests: at most {rate_s:g} a second", headers=retry_after(wait_s))


def _given(headers: Mapping[str, str]) -> str | None:
    """Return the key that a request has, unless it cannot be a key."""
    key = headers.get("x-api-key")
    if key is None:
        key = bearer(headers) or ""
    key = key.strip()
    return key if _KEY.fullmatch(key) else None
