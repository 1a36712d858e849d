from __future__ import annotations

import json
import sqlite3
from unittest.mock import patch

import pytest

from atoll.errors import SupervisorError
from atoll.supervisor.state import database
from atoll.supervisor.state.database import migrate, migrations


def test_the_limits_of_an_older_home_are_kept_and_its_disks_get_none() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript(f"{migrations()[0][1]}; PRAGMA user_version = 1;")
    values = {
        name: "x" if kind == "TEXT" else 0
        for _, name, kind, *_ in connection.execute("PRAGMA table_info(sandboxes)")
    }
    for changes in (
        {"vcpus": None, "memory_mib": 512},
        {"sandbox_id": "y", "name": "y", "vcpus": 1.5, "memory_mib": None},
    ):
        row = {**values, **changes}
        connection.execute(f"INSERT INTO sandboxes VALUES ({','.join('?' * len(row))})", list(row.values()))
    migrate(connection)
    assert [text for (text,) in connection.execute("SELECT limits FROM sandboxes")] == [
        '{"memory_mib":512,"disk_mib":1000000000}',
        '{"vcpus":1.5,"disk_mib":1000000000}',
    ]
    connection.close()


def test_the_volumes_of_an_older_home_can_be_written() -> None:
    connection = sqlite3.connect(":memory:")
    steps = migrations()
    with patch.object(database, "migrations", lambda: [step for step in steps if step[0] < 31]):
        migrate(connection)
    for mounts in ("{}", '{"/data":"v1","/it\'s \\"":"v2"}'):
        values = {
            name: mounts if name == "volumes" else mounts[:9] if kind == "TEXT" else 0
            for _, name, kind, *_ in connection.execute("PRAGMA table_info(sandboxes)")
        }
        marks = ",".join("?" * len(values))
        connection.execute(f"INSERT INTO sandboxes VALUES ({marks})", list(values.values()))
    migrate(connection)
    none, some = (json.loads(text) for (text,) in connection.execute("SELECT volumes FROM sandboxes"))
    assert none == {}
    expected = {"/data": "v1", "/it's \"": "v2"}
    assert some == {path: {"volume": id_, "read_only": False} for path, id_ in expected.items()}
    connection.close()


def test_a_migration_of_a_lower_number_that_comes_late_is_run_once() -> None:
    first, second = (1, "CREATE TABLE a (x);"), (3, "CREATE TABLE c (x);")
    connection = sqlite3.connect(":memory:")
    with patch.object(database, "migrations", lambda: [first, second]):
        migrate(connection)
    with patch.object(database, "migrations", lambda: [first, (2, "CREATE TABLE b (x);"), second]):
        migrate(connection)
        migrate(connection)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert tables == {"a", "b", "c", "migrations"}
    with patch.object(database, "migrations", lambda: [first, second]), pytest.raises(SupervisorError):
        migrate(connection)
    connection.close()


def test_a_home_of_before_the_list_of_migrations_goes_on() -> None:
    connection = sqlite3.connect(":memory:")
    connection.executescript("CREATE TABLE a (x); PRAGMA user_version = 1;")
    steps = [(1, "CREATE TABLE a (x);"), (2, "CREATE TABLE b (x);")]
    with patch.object(database, "migrations", lambda: steps):
        migrate(connection)
    assert connection.execute("SELECT number FROM migrations ORDER BY number").fetchall() == [(1,), (2,)]
    connection.close()
