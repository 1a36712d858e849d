"""Manages the teams that share a home."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from atoll.errors import InUseError, InvalidSpecError, NameTakenError, TeamNotFoundError
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import TeamRow
from atoll.supervisor.storage.trash import erase, erase_unknown
from atoll.types import EgressPolicy, Quotas, TeamInfo

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SHOWN_MOST = 5


@dataclass(eq=False, repr=False)
class Teams:
    """Makes, changes and deletes teams.

    Args:
        directory: Where each team has a directory for the copy of its row.
        clock: Returns Unix seconds.
    """

    database: Database
    directory: Path
    clock: Callable[[], float]
    _rows: dict[str, TeamRow] = field(default_factory=dict, init=False)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _ceiling_set: Callable[[str], None] = field(default_factory=lambda: lambda _: None, init=False)

    async def load(self) -> None:
        """Read the teams from the database."""
        self._rows = {row.name: row for row in await self.database.all(TeamRow)}
        await erase_unknown(self.directory, self._rows)

    def list(self) -> list[TeamInfo]:
        """All teams, the oldest first."""
        return [row.info() for row in self._rows.values()]

    def get(self, name: str) -> TeamInfo:
        """The team with this name.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        return self._row(name).info()

    def quotas_of(self, name: str | None) -> Quotas:
        """The quotas of a team. There are none without a team, or if it does not exist."""
        row = self._rows.get(name) if name is not None else None
        return row.quotas if row is not None else Quotas()

    def ceiling_of(self, name: str | None) -> EgressPolicy | None:
        """The ceiling of a team's sandboxes; None means no ceiling. A missing team has ``none``."""
        if name is None:
            return None
        row = self._rows.get(name)
        return row.ceiling if row is not None else "none"

    def follow(self, ceiling_set: Callable[[str], None]) -> None:
        """Call back with the name of a team when its ceiling has changed."""
        self._ceiling_set = ceiling_set

    async def create(self, name: str, quotas: Quotas) -> TeamInfo:
        """Make a team. It is on the disk when this returns.

        Raises:
            InvalidSpecError: The name or a quota is invalid.
            NameTakenError: Another team has the name.
        """
        if not _NAME.fullmatch(name):
            raise InvalidSpecError(
                f"{name!r} is not a valid team name",
                hint="use 1 to 32 lowercase letters, digits and dashes, without a dash at the start",
            )
        quotas.check()
        async with self._lock:
            if name in self._rows:
                raise NameTakenError(f"there is a team {name!r}", hint="choose another name")
            now_s = self.clock()
            (self.directory / name).mkdir(mode=0o700, exist_ok=True)
            await self._put(TeamRow(name=name, created_at=now_s, changed_at=now_s, quotas=quotas))
        return self.get(name)

    async def set_quotas(self, name: str, quotas: Quotas) -> TeamInfo:
        """Replace a team's quotas. The team keeps its use beyond them, but gets no more.

        Raises:
            TeamNotFoundError: There is no such team.
            InvalidSpecError: A quota is invalid.
        """
        quotas.check()
        async with self._lock:
            await self._put(self._row(name).but(quotas=quotas, changed_at=self.clock()))
        return self.get(name)

    async def set_ceiling(self, name: str, ceiling: EgressPolicy | None) -> TeamInfo:
        """Replace the ceiling of the team's sandboxes. It is in force when this returns.

        Raises:
            TeamNotFoundError: There is no such team.
        """
        async with self._lock:
            await self._put(self._row(name).but(ceiling=ceiling, changed_at=self.clock()))
            self._ceiling_set(name)
        return self.get(name)

    async def delete(
        self, name: str, owned: Callable[[], Sequence[str]], forget: Callable[[], Awaitable[None]]
    ) -> None:
        """Delete a team that owns nothing any more.

        Args:
            owned: Returns the team's things, in words for people.
            forget: Awaited before the team's row is deleted: nothing of the team may reappear in another
                team with the same name.

        Raises:
            TeamNotFoundError: There is no such team.
            InUseError: The team owns something; the message names it.
        """
        async with self._lock:
            row = self._row(name)
            if things := owned():
                more = f" and {len(things) - _SHOWN_MOST} more" if len(things) > _SHOWN_MOST else ""
                raise InUseError(
                    f"team {name!r} owns {', '.join(things[:_SHOWN_MOST])}{more}", hint="delete those first"
                )
            # Do this before any await: an operation that starts for the team now must not find it.
            del self._rows[name]
            try:
                await forget()
                await self.database.delete(row)
            except BaseException:
                self._rows[name] = row
                raise
            await erase(self.directory / name)

    async def _put(self, row: TeamRow) -> None:
        await self.database.put(row, durable=True)
        self._rows[row.name] = row

    def _row(self, name: str) -> TeamRow:
        try:
            return self._rows[name]
        except KeyError:
            raise TeamNotFoundError(f"there is no team {name!r}", hint="`atoll team ls` lists them") from None
