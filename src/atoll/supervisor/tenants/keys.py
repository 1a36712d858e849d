"""Manages the keys with which teams authenticate to a server. Stores only their hashes."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import AtollError, DeniedError, InvalidSpecError, KeyNotFoundError, TeamNotFoundError
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import KeyRow
from atoll.supervisor.storage.trash import erase, erase_unknown
from atoll.supervisor.tenants.teams import Teams
from atoll.types import KeyInfo, NewKey, TeamInfo
from atoll.types.internal import key_hash, key_id_of, key_prefix

PREFIX = "e2b_"
_SECRET_BYTES = 20
_KEY_MOST = 200
_NAME_MOST = 64
# `used_at` need not be exact to the second, and a busy key is checked many times a second.
_USED_S = 60.0
# How long a key that has ended is listed.
_ENDED_S = 30 * 86400.0
_log = logging.getLogger(__name__)


async def nothing_of(_: str) -> None:
    """Nothing belongs to a key but its row."""


@dataclass(eq=False, repr=False)
class Keys:
    """Makes, checks and revokes keys.

    Args:
        directory: Where each key has a directory for the copy of its row.
        clock: Returns Unix seconds.
        forgotten: Awaited with the id of a key whose row is deleted.
    """

    database: Database
    directory: Path
    teams: Teams
    clock: Callable[[], float]
    forgotten: Callable[[str], Awaitable[None]] = nothing_of
    _rows: dict[str, KeyRow] = field(default_factory=dict, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def load(self) -> None:
        """Read the keys from the database."""
        self._rows = {row.key_id: row for row in await self.database.all(KeyRow)}
        await erase_unknown(self.directory, self._rows)

    def list(self, team: str | None = None) -> list[KeyInfo]:
        """All keys, or those of a team, the oldest first. Keys that have ended are listed for 30 days.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        if team is not None:
            self.teams.get(team)
        return [row.info() for row in self._rows.values() if team in (None, row.team)]

    async def create(self, team: str, name: str, expires_in_s: float | None) -> NewKey:
        """Make a key. Its hash is on the disk when this returns.

        Raises:
            TeamNotFoundError: There is no such team.
            InvalidSpecError: The name or the time is invalid.
        """
        if not 1 <= len(name) <= _NAME_MOST or not name.isprintable():
            raise InvalidSpecError(
                f"{name!r} is not a valid key name", hint=f"give 1 to {_NAME_MOST} printable characters"
            )
        if expires_in_s is not None and not 0 < expires_in_s < float("inf"):
            raise InvalidSpecError(f"expires_in_s is {expires_in_s:g}", hint="give seconds, more than 0")
        key = f"{PREFIX}{secrets.token_hex(_SECRET_BYTES)}"
        now_s = self.clock()
        row = KeyRow(
            key_id=key_id_of(key),
            team=team,
            name=name,
            prefix=key_prefix(key),
            hash=key_hash(key),
            created_at=now_s,
            changed_at=now_s,
            expires_at=None if expires_in_s is None else now_s + expires_in_s,
        )
        async with self._lock:
            self.teams.get(team)
            # At once, so that the team is not deleted meanwhile.
            self._rows[row.key_id] = row
            try:
                (self.directory / row.key_id).mkdir(mode=0o700, exist_ok=True)
                await self.database.put(row, durable=True)
            except BaseException:
                self._rows.pop(row.key_id, None)
                raise
            await self._forget(lambda old: _ended(old, now_s - _ENDED_S))
        return NewKey(key=key, info=row.info())

    async def revoke(self, key_id: str) -> KeyInfo:
        """Make a key invalid. This is on the disk when it returns. A revoked key stays revoked.

        Raises:
            KeyNotFoundError: There is no key with this id.
        """
        async with self._lock:
            row = self._rows.get(key_id)
            if row is None:
                raise KeyNotFoundError(f"there is no key {key_id!r}", hint="`atoll key ls` lists them")
            if row.revoked_at is None:
                now_s = self.clock()
                before, row = row, row.but(revoked_at=now_s, changed_at=now_s)
                # First in memory, for requests that come now, then on the disk.
                self._rows[key_id] = row
                try:
                    await self.database.put(row, durable=True)
                except BaseException:
                    self._rows[key_id] = before
                    raise
        return row.info()

    async def check(self, key: str) -> TeamInfo:
        """The team that a key belongs to.

        Raises:
            DeniedError: There is no such key, or it is revoked or expired.
        """
        now_s = self.clock()
        row = self._rows.get(key_id_of(key)) if len(key) <= _KEY_MOST else None
        if row is None or not hmac.compare_digest(row.hash, key_hash(key)) or _ended(row, now_s):
            raise DeniedError("the key is wrong", hint="`atoll key create` makes one")
        try:
            team = self.teams.get(row.team)
        except TeamNotFoundError:
            raise DeniedError("the key is wrong", hint="its team is being deleted") from None
        if row.used_at is None or now_s - row.used_at >= _USED_S:
            await self._note_use(row, now_s)
        return team

    async def forget_team(self, team: str) -> None:
        """Delete all keys of a team that is being deleted."""
        async with self._lock:
            await self._forget(lambda row: row.team == team)

    async def _note_use(self, row: KeyRow, now_s: float) -> None:
        async with self._lock:
            newest = self._rows.get(row.key_id)
            if newest is None:
                return
            noted = newest.but(used_at=now_s, changed_at=now_s)
            self._rows[row.key_id] = noted
            try:
                await self.database.put(noted)
            except AtollError as error:
                # A full disk must not prevent the use of existing keys.
                _log.warning("cannot store the last use of key %s: %s", row.key_id, error)

    async def _forget(self, wanted: Callable[[KeyRow], bool]) -> None:
        for row in [row for row in self._rows.values() if wanted(row)]:
            await self.database.delete(row)
            self._rows.pop(row.key_id, None)
            await erase(self.directory / row.key_id)
            await self.forgotten(row.key_id)


def _ended(row: KeyRow, now_s: float) -> bool:
    """Whether a key was revoked or expired at this time."""
    expired = row.expires_at is not None and row.expires_at <= now_s
    return expired or (row.revoked_at is not None and row.revoked_at <= now_s)
