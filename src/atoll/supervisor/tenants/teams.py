"""The teams that share a home."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from atoll.errors import InUseError, InvalidSpecError, NameTakenError, TeamNotFoundError
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.rows import TeamRow
from atoll.supervisor.storage.trash import erase, erase_unknown
from atoll.types import Quotas, TeamInfo

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_SHOWN_MOST = 5


class Teams:
    """Makes, changes and deletes teams.

    Args:
        database: The database.
        directory: Where each has a directory for the copy of its row.
        clock: Unix seconds.

    Attributes:
        owned: Each tells what a team owns, in words for people; a team that owns anything is not deleted.
        going: Each is awaited before the row of a team goes: nothing that bears its name may come back with
            another team of that name.
    """

    def __init__(self, database: Database, directory: Path, clock: Callable[[], float]) -> None:
        self._database = database
        self._directory = directory
        self._clock = clock
        self._rows: dict[str, TeamRow] = {}
        self._lock = asyncio.Lock()
        self.owned: list[Callable[[str], Iterable[str]]] = []
        self.going: list[Callable[[str], Awaitable[None]]] = []

    async def load(self) -> None:
        """Read what the database has."""
        self._rows = {row.name: row for row in await self._database.all(TeamRow)}
        await erase_unknown(self._directory, self._rows)

    def list(self) -> list[TeamInfo]:
        """All of them, oldest first."""
        return [row.info() for row in self._rows.values()]

    def get(self, name: str) -> TeamInfo:
        """The team of that name.

        Raises:
            TeamNotFoundError: There is none.
        """
        return self._row(name).info()

    def quotas_of(self, name: str | None) -> Quotas:
        """The quotas of a team; none for nobody, nor for a team that is not there."""
        row = self._rows.get(name) if name is not None else None
        return row.quotas if row is not None else Quotas()

    async def create(self, name: str, quotas: Quotas) -> TeamInfo:
        """Make a team; on the disk when this returns.

        Raises:
            InvalidSpecError: It is no name, or a quota makes no sense.
            NameTakenError: There is one of that name.
        """
        if not _NAME.fullmatch(name):
            raise InvalidSpecError(
                f"{name!r} is no name of a team",
                hint="use 1 to 32 lowercase letters, digits and dashes, no dash first",
            )
        quotas.check()
        async with self._lock:
            if name in self._rows:
                raise NameTakenError(f"there is a team {name!r}", hint="choose another name")
            now_s = self._clock()
            (self._directory / name).mkdir(mode=0o700, exist_ok=True)
            await self._put(TeamRow(name=name, created_at=now_s, changed_at=now_s, quotas=quotas))
        return self.get(name)

    async def set_quotas(self, name: str, quotas: Quotas) -> TeamInfo:
        """Replace a team's quotas. What it uses beyond them it keeps; it gets no more.

        Raises:
            TeamNotFoundError: There is none of that name.
            InvalidSpecError: A quota makes no sense.
        """
        quotas.check()
        async with self._lock:
            await self._put(self._row(name).but(quotas=quotas, changed_at=self._clock()))
        return self.get(name)

    async def delete(self, name: str) -> None:
        """Forget a team that owns nothing any more, and its keys.

        Raises:
            TeamNotFoundError: There is none of that name.
            InUseError: It owns something; the message says what.
        """
        async with self._lock:
            row = self._row(name)
            owned = [thing for tell in self.owned for thing in tell(name)]
            if owned:
                more = f" and {len(owned) - _SHOWN_MOST} more" if len(owned) > _SHOWN_MOST else ""
                raise InUseError(
                    f"team {name!r} owns {', '.join(owned[:_SHOWN_MOST])}{more}", hint="remove those first"
                )
            # Before anything is awaited: whoever begins something for it now must not find it.
            del self._rows[name]
            try:
                for forget in self.going:
                    await forget(name)
                await self._database.delete(row)
            except BaseException:
                self._rows[name] = row
                raise
            await erase(self._directory / name)

    async def _put(self, row: TeamRow) -> None:
        await self._database.put(row, durable=True)
        self._rows[row.name] = row

    def _row(self, name: str) -> TeamRow:
        try:
            return self._rows[name]
        except KeyError:
            raise TeamNotFoundError(
                f"there is no team {name!r}", hint="`atoll team ls` shows those there are"
            ) from None
