"""The database: the one truth about sandboxes and snapshots."""

from __future__ import annotations

import asyncio
import os
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atoll.errors import NameTakenError, NoSpaceError, SupervisorError
from atoll.supervisor.rows import OperationRow, SandboxRow, SnapshotRow

_T = TypeVar("_T")
_Row = SandboxRow | SnapshotRow | OperationRow
_TABLES: dict[type[_Row], tuple[str, str]] = {
    SandboxRow: ("sandboxes", "sandbox_id"),
    SnapshotRow: ("snapshots", "snapshot_id"),
    OperationRow: ("operations", "sandbox_id"),
}
_JSON_FIELDS = frozenset({"env", "limits", "metadata", "stack", "versions"})


class Records:
    """SQLite in WAL mode. A worker thread makes the accesses that may wait for the disk.

    A small write costs a tenth of a thread's hand-over, so it is made at once while the worker has nothing to do.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")
        self._database: sqlite3.Connection | None = None
        self._waiting = 0

    async def open(self) -> None:
        """Open the database, made if missing, and bring it to this version's tables.

        Raises:
            SupervisorError: A newer atoll has made it.
        """
        await self._do(self._open)

    async def aclose(self) -> None:
        """Write out what is pending and close."""
        await self._do(self._close)
        self._worker.shutdown()

    async def sandboxes(self) -> list[SandboxRow]:
        """All of them, oldest first."""
        return await self._do(lambda: self._all(SandboxRow))

    async def snapshots(self) -> list[SnapshotRow]:
        """All of them, oldest first."""
        return await self._do(lambda: self._all(SnapshotRow))

    async def operations(self) -> list[OperationRow]:
        """Those that were begun and have not ended, oldest first."""
        return await self._do(lambda: self._all(OperationRow))

    async def put(self, *rows: _Row, durable: bool = False) -> None:
        """Insert or replace rows, all or none. With ``durable`` they are on the disk when this returns.

        Raises:
            NameTakenError: Another row has the name.
        """
        if durable or self._waiting:
            await self._do(lambda: self._put(rows, durable))
        else:
            self._put(rows, durable)

    async def delete(self, *rows: _Row, durable: bool = True) -> None:
        """Forget rows, all or none; absent ones are no error. With ``durable`` the disk has it on return."""
        if durable or self._waiting:
            await self._do(lambda: self._delete(rows, durable))
        else:
            self._delete(rows, durable)

    async def _do(self, work: Callable[[], _T]) -> _T:
        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(self._worker, work)
        done.add_done_callback(self._worked)
        # SQLite's thread goes on anyway: a caller that is cancelled hears of it after it knows what was written.
        cancelled = False
        while not done.done():
            try:
                await asyncio.wait({done})
            except asyncio.CancelledError:
                cancelled = True
        if cancelled and (task := asyncio.current_task()):
            task.uncancel()
            task.cancel()
        return done.result()

    def _worked(self, _: asyncio.Future[Any]) -> None:
        self._waiting -= 1

    def _open(self) -> None:
        # SQLite would make it readable for all; what it adds beside it gets the same mode.
        os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        os.chmod(self._path, 0o600)
        database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        migrate(database)
        self._database = database

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            raise SupervisorError("the database is closed")
        return self._database

    def _all(self, kind: type[Any]) -> list[Any]:
        table, _ = _TABLES[kind]
        cursor = self._connected().execute(f"SELECT * FROM {table} ORDER BY created_at, rowid")
        names = [column[0] for column in cursor.description]
        return [_read(kind, dict(zip(names, values, strict=True))) for values in cursor]

    def _put(self, rows: tuple[_Row, ...], durable: bool) -> None:
        self._transact([_upsert(row) for row in rows], durable)

    def _delete(self, rows: tuple[_Row, ...], durable: bool) -> None:
        statements = []
        for row in rows:
            table, key = _TABLES[type(row)]
            statements.append((f"DELETE FROM {table} WHERE {key} = ?", [getattr(row, key)]))
        self._transact(statements, durable)

    def _transact(self, statements: list[tuple[str, list[object]]], durable: bool) -> None:
        database = self._connected()
        database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
        database.execute("BEGIN IMMEDIATE")
        try:
            for statement, values in statements:
                database.execute(statement, values)
            database.execute("COMMIT")
        except BaseException as error:
            if database.in_transaction:  # SQLite undoes some by itself, that which finds the disk full too
                database.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise NoSpaceError(
                    f"no space is left for {self._path}", hint="free some space under the home"
                ) from None
            if isinstance(error, sqlite3.IntegrityError) and ".name" in str(error):
                raise NameTakenError(
                    "that name is taken", hint="choose another one, or kill its owner"
                ) from None
            raise


def migrations() -> list[tuple[int, str]]:
    """Number and text of each migration, in order."""
    folder = resources.files("atoll.supervisor") / "migrations"
    found = []
    for entry in folder.iterdir():
        if matched := re.fullmatch(r"(\d{4})_\w+\.sql", entry.name):
            found.append((int(matched[1]), entry.read_text("utf-8")))
    return sorted(found)


def migrate(database: sqlite3.Connection) -> None:
    """Run the migrations that this database has not seen, each in a transaction of its own.

    Raises:
        SupervisorError: A newer atoll has made it.
    """
    (version,) = database.execute("PRAGMA user_version").fetchone()
    steps = migrations()
    if version > steps[-1][0]:
        raise SupervisorError(
            f"the database is of version {version}, this atoll knows {steps[-1][0]}",
            hint="a newer atoll has used this home: update atoll, or use another ATOLL_HOME",
        )
    for number, text in steps:
        if number > version:
            database.executescript(f"BEGIN;\n{text}\nPRAGMA user_version={number};\nCOMMIT;")


def _upsert(row: _Row) -> tuple[str, list[object]]:
    table, key = _TABLES[type(row)]
    names = row.__struct_fields__
    columns = ", ".join(f'"{name}"' for name in names)
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name != key)
    marks = ", ".join("?" for _ in names)
    values = [_written(name, getattr(row, name)) for name in names]
    return (
        f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}",
        values,
    )


def _written(name: str, value: object) -> object:
    return msgspec.json.encode(value).decode() if name in _JSON_FIELDS else value


def _read(kind: type[Any], values: dict[str, Any]) -> Any:
    for name in _JSON_FIELDS & values.keys():
        values[name] = msgspec.json.decode(values[name])
    return msgspec.convert(values, kind, strict=False)
