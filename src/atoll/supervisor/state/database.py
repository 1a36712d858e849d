"""The database: the single source of truth about sandboxes, snapshots, teams and keys."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from importlib import resources
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from atoll.errors import HostError, NameTakenError, NoSpaceError, SupervisorError
from atoll.supervisor.state.reserve import BALLAST, EmergencyReserve
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.rows import (
    KEYS,
    BudgetRow,
    DelegationRow,
    EdgeRow,
    KeptRow,
    KeyRow,
    ModelUseRow,
    OperationRow,
    SandboxRow,
    SecretRow,
    SnapshotRow,
    StepRow,
    TeamRow,
    TemplateRow,
    UnkeptRow,
    VolumeRow,
    key_of,
)
from atoll.types.internal import converted, from_json

DAMAGED = "damaged"
VERSION = 3
"""The version of the tables in schema.sql."""
_KEEP_S = 0.05
_T = TypeVar("_T")
_R = TypeVar(
    "_R",
    SandboxRow,
    SnapshotRow,
    VolumeRow,
    TeamRow,
    KeyRow,
    SecretRow,
    TemplateRow,
    StepRow,
    OperationRow,
    DelegationRow,
    BudgetRow,
    ModelUseRow,
    EdgeRow,
)
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_log = logging.getLogger(__name__)
_Row = KeptRow | UnkeptRow
_UNKEPT = (OperationRow, StepRow, DelegationRow, BudgetRow, ModelUseRow, EdgeRow)
TABLES: dict[type[_Row], str] = {
    SandboxRow: "sandboxes",
    SnapshotRow: "snapshots",
    VolumeRow: "volumes",
    TeamRow: "teams",
    KeyRow: "keys",
    SecretRow: "secrets",
    TemplateRow: "templates",
    StepRow: "steps",
    OperationRow: "operations",
    DelegationRow: "delegations",
    BudgetRow: "budgets",
    ModelUseRow: "model_uses",
    EdgeRow: "edges",
}
_FOREIGN_S = 1.0
_JSON_FIELDS = frozenset(
    {
        "idempotency",
        "attributes",
        "builds",
        "ceiling",
        "delegation",
        "env",
        "hosts",
        "lifecycle",
        "limits",
        "metadata",
        "models",
        "network",
        "promoted",
        "quotas",
        "recovered",
        "runs",
        "services",
        "snapshot_failed",
        "stack",
        "start_commands",
        "tags",
        "unplugged",
        "versions",
        "volumes",
    }
)


class Database:
    """Stores rows in SQLite in WAL mode. A worker thread does the work that may wait for the disk.

    A small write costs a tenth of handing it to a thread, so it is done at once while the worker is idle.
    Copies of rows are written a moment later.

    Args:
        path: The database.
        copies: Keeps a copy of each row, in case the database is lost.
    """

    def __init__(self, path: Path, copies: RowCopies | None = None) -> None:
        self._path = path
        self._row_copies = copies
        self._reserve = EmergencyReserve(path.with_name(BALLAST))
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="records")
        self._database: sqlite3.Connection | None = None
        self._is_durable: bool | None = None
        self._waiting = 0
        self._pending: dict[tuple[type[_Row], str], _Row] = {}
        self._keeping: asyncio.TimerHandle | None = None

    async def open(self) -> None:
        """Open the database, creating it if it is missing.

        Raises:
            SupervisorError: An atoll with other tables has made it.
        """
        await self._do(self._open)

    async def aclose(self) -> None:
        """Write all pending copies, and close the database."""
        self._keep_pending()
        await self._do(self._close)
        self._worker.shutdown()

    async def all(self, kind: type[_R]) -> list[_R]:
        """All rows of a kind, the oldest first."""
        return await self._do(lambda: self._all(kind))

    async def put(self, *rows: _Row, durable: bool = False, freeing: bool = False) -> None:
        """Insert or replace rows, all or none. With ``durable`` they are on the disk when this returns.

        Args:
            freeing: Whether the next step frees space, so that this write may use the emergency reserve. The
                rows of killed sandboxes always may.

        Raises:
            NameTakenError: Another row has the name.
        """
        if _killed(rows) or any(isinstance(row, TeamRow | KeyRow | SecretRow) for row in rows):
            # No pending copy may land in a directory that will be erased. An older copy must not bring back a
            # revoked key or an earlier secret.
            self._forget_pending(rows)
            await self._do(lambda: self._put_and_keep(rows, durable))
            return
        if durable or self._waiting:
            await self._do(lambda: self._put(rows, durable, freeing=freeing))
        else:
            self._put(rows, durable, freeing=freeing)
        self._keep_soon(rows)

    async def delete(self, *rows: _Row, durable: bool = True) -> None:
        """Delete rows, all or none; missing rows are no error.

        With ``durable`` this is on the disk on return.
        """
        self._forget_pending(rows)
        if durable or self._waiting:
            await self._do(lambda: self._delete(rows, durable))
        else:
            self._delete(rows, durable)

    async def copy(self, *rows: _Row) -> None:
        """Write the copies of these rows and of all recent changes, and wait until they are written."""
        for row in rows:
            self._pending.setdefault(_identity(row), row)
        self._keep_pending()
        await self._do(lambda: None)

    def _keep_soon(self, rows: tuple[_Row, ...]) -> None:
        """Schedule copies of the newest versions of rows, so that a series of changes writes few copies."""
        self._pending.update({_identity(row): row for row in rows if not isinstance(row, _UNKEPT)})
        if self._pending and self._keeping is None:
            self._keeping = asyncio.get_running_loop().call_later(_KEEP_S, self._keep_pending)

    def _keep_pending(self) -> None:
        if self._keeping is not None:
            self._keeping.cancel()
        rows, self._pending, self._keeping = tuple(self._pending.values()), {}, None
        if rows:
            self._worker.submit(self._keep, rows)

    def _forget_pending(self, rows: tuple[_Row, ...]) -> None:
        for row in rows:
            self._pending.pop(_identity(row), None)

    async def _do(self, work: Callable[[], _T]) -> _T:
        self._waiting += 1
        done = asyncio.get_running_loop().run_in_executor(self._worker, work)
        done.add_done_callback(self._worked)
        # SQLite's thread continues anyway: a cancelled caller hears of it once the result is known.
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
        self._reserve.begin()
        is_new = not self._path.exists()
        try:
            self._database = _opened(self._path)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode not in _DAMAGE:
                raise
            _log.error("the database is damaged (%s): restoring its rows from their copies", error)
            _put_aside(self._path)
            is_new = True
            self._database = _opened(self._path)
        if is_new:
            self._read_back()

    def _read_back(self) -> None:
        """Fill an empty database from the copies of its rows, if there are any."""
        for row in self._row_copies.all() if self._row_copies else ():
            try:
                self._put_and_keep((row,), durable=True)
            except NameTakenError:
                self._put_and_keep((row.but(name=None),), durable=True)

    def _close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None

    def _connected(self) -> sqlite3.Connection:
        if self._database is None:
            raise SupervisorError("the database is closed")
        return self._database

    def _all(self, kind: type[Any]) -> list[Any]:
        table = TABLES[kind]
        cursor = self._connected().execute(f"SELECT * FROM {table} ORDER BY created_at, rowid")
        names = [column[0] for column in cursor.description]
        rows = [self._row(kind, dict(zip(names, values, strict=True))) for values in cursor]
        return [row for row in rows if row is not None]

    def _row(self, kind: type[Any], values: dict[str, Any]) -> Any:
        """The row with these values, or its copy if the values are damaged."""
        key = KEYS[kind]
        try:
            row = _read(kind, dict(values))
        except (ValueError, TypeError):
            row = None
        if kind in _UNKEPT or self._row_copies is None:
            return row
        copy = self._row_copies.of(kind, values[key])
        if row is None:
            _log.error("the row of %s is damaged; it has %s copy", values[key], "a" if copy else "no")
            return copy
        same_time = copy is not None and getattr(copy, "changed_at", 0) == getattr(row, "changed_at", 0)
        if copy is not None and same_time and copy != row:
            _log.error("the row of %s is damaged; its copy is valid", values[key])
            return copy
        if not same_time:
            # The last supervisor was killed after it wrote the row and before it wrote the copy.
            self._row_copies.keep(row)
        return row

    def _put_and_keep(self, rows: tuple[_Row, ...], durable: bool) -> None:
        self._put(rows, durable)
        self._keep(rows)

    def _put(self, rows: tuple[_Row, ...], durable: bool, *, freeing: bool = False) -> None:
        self._transact([_upsert(row) for row in rows], durable, freeing=freeing or _killed(rows))
        self._erase_traces(rows)

    def _keep(self, rows: tuple[_Row, ...]) -> None:
        for row in rows:
            if self._row_copies is not None and not isinstance(row, _UNKEPT):
                self._row_copies.keep(row)

    def _delete(self, rows: tuple[_Row, ...], durable: bool) -> None:
        statements: list[tuple[str, list[object]]] = []
        for row in rows:
            table, key = TABLES[type(row)], KEYS[type(row)]
            statements.append((f"DELETE FROM {table} WHERE {key} = ?", [key_of(row)]))
        # A durable deletion belongs to files that were erased before it, or are erased next.
        self._transact(statements, durable, freeing=durable)
        self._erase_traces(rows)

    def _erase_traces(self, rows: tuple[_Row, ...]) -> None:
        """Empty the write-ahead log after a change of secrets, because it still has their earlier rows."""
        if any(isinstance(row, SecretRow) for row in rows):
            try:
                self._connected().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            except sqlite3.Error as error:
                _log.warning("%s keeps what secrets were before, until it is written: %s", self._path, error)

    def _transact(
        self, statements: list[tuple[str, list[object]]], durable: bool, *, freeing: bool = False
    ) -> None:
        """Write all or nothing. A write that frees space uses the emergency reserve when the disk is full."""
        try:
            self._try(statements, durable)
        except NoSpaceError:
            if not (freeing and self._reserve.drop()):
                raise
            self._try(statements, durable)
        if durable:
            self._reserve.load()

    def _try(self, statements: list[tuple[str, list[object]]], durable: bool) -> None:
        database = self._connected()
        if durable != self._is_durable:
            database.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._is_durable = durable
        try:
            database.execute("BEGIN IMMEDIATE")
            for statement, values in statements:
                database.execute(statement, values)
            database.execute("COMMIT")
        except BaseException as error:
            if database.in_transaction:  # SQLite rolls back some errors by itself, also a full disk
                database.execute("ROLLBACK")
            if getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_FULL:
                raise NoSpaceError(
                    f"no space is left for {self._path}", hint="free some space under the home"
                ) from None
            if isinstance(error, sqlite3.IntegrityError) and ".name" in str(error):
                raise NameTakenError(
                    "that name is taken", hint="choose another one, or kill its owner"
                ) from None
            if isinstance(error, sqlite3.Error):
                raise HostError(
                    f"{self._path} cannot be written: {error}", hint="see the host's kernel log"
                ) from error
            raise


def read_without_owner(path: Path, kind: type[_R]) -> list[_R]:
    """Read the rows of a kind, without changing anything, from a database that another process may have open.

    Damaged rows are left out.

    Raises:
        sqlite3.Error: It cannot be read.
    """
    database = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=_FOREIGN_S)
    try:
        database.text_factory = _text
        cursor = database.execute(f"SELECT * FROM {TABLES[kind]}")
        names = [column[0] for column in cursor.description]
        rows: list[_R] = []
        for values in cursor:
            with contextlib.suppress(ValueError, TypeError):
                rows.append(_read(kind, dict(zip(names, values, strict=True))))
        return rows
    finally:
        database.close()


def _identity(row: _Row) -> tuple[type[_Row], str]:
    return type(row), key_of(row)


def _killed(rows: tuple[_Row, ...]) -> bool:
    return any(isinstance(row, SandboxRow) and row.state == "killed" for row in rows)


def _opened(path: Path) -> sqlite3.Connection:
    """The database, created if missing, and checked."""
    # SQLite would make it readable for everybody. The files that it adds get the same mode.
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    os.chmod(path, 0o600)
    database = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    # Damaged text may not decode: damage is detected when the row is read.
    database.text_factory = _text
    try:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=NORMAL")
        # SQLite overwrites deleted and replaced data with zeros: rows of secrets leave nothing behind.
        database.execute("PRAGMA secure_delete=ON")
        (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            damaged = sqlite3.DatabaseError(verdict)
            damaged.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
            raise damaged
        _make_tables(database, path)
    except BaseException:
        database.close()
        raise
    return database


def _put_aside(path: Path) -> None:
    """Move a damaged database aside for inspection, replacing an earlier one."""
    for end in ("-wal", "-shm", ""):
        with contextlib.suppress(FileNotFoundError):
            os.replace(f"{path}{end}", f"{path}.{DAMAGED}{end}")


def _make_tables(database: sqlite3.Connection, path: Path) -> None:
    """Make the tables of a new database, and refuse a database with other tables."""
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version == 0:
        tables = (resources.files("atoll.supervisor.state") / "schema.sql").read_text("utf-8")
        database.executescript(f"BEGIN;\n{tables}\nPRAGMA user_version={VERSION};\nCOMMIT;")
    elif version != VERSION:
        raise SupervisorError(
            f"{path} has the tables of another atoll: version {version}, and this one has {VERSION}",
            hint=f"use the atoll that made this home, or start anew: move {path.parent} away, or set another "
            "ATOLL_HOME; before 1.0 no home is converted",
        )


def _upsert(row: _Row) -> tuple[str, list[object]]:
    return _upsert_text(type(row)), [_written(name, getattr(row, name)) for name in row.__struct_fields__]


@functools.cache
def _upsert_text(kind: type[_Row]) -> str:
    table, key, names = TABLES[kind], KEYS[kind], kind.__struct_fields__
    columns = ", ".join(f'"{name}"' for name in names)
    changes = ", ".join(f'"{name}" = excluded."{name}"' for name in names if name != key)
    marks = ", ".join("?" for _ in names)
    return f"INSERT INTO {table} ({columns}) VALUES ({marks}) ON CONFLICT ({key}) DO UPDATE SET {changes}"


def _written(name: str, value: object) -> object:
    return msgspec.json.encode(value).decode() if name in _JSON_FIELDS else value


def _text(data: bytes) -> str:
    return data.decode(errors="surrogateescape")


def _read(kind: type[Any], values: dict[str, Any]) -> Any:
    for value in values.values():
        if isinstance(value, str):
            value.encode()
    for name in _JSON_FIELDS & values.keys():
        values[name] = from_json(values[name])
    return converted(values, kind, strict=False)
