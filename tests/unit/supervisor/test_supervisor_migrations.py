from __future__ import annotations

import sqlite3

from atoll.supervisor.records import migrate, migrations


def test_the_limits_of_an_older_home_are_kept() -> None:
    database = sqlite3.connect(":memory:")
    database.executescript(f"{migrations()[0][1]}; PRAGMA user_version = 1;")
    values = {
        name: "x" if kind == "TEXT" else 0
        for _, name, kind, *_ in database.execute("PRAGMA table_info(sandboxes)")
    }
    for changes in (
        {"vcpus": None, "memory_mib": 512},
        {"sandbox_id": "y", "name": "y", "vcpus": 1.5, "memory_mib": None},
    ):
        row = {**values, **changes}
        database.execute(f"INSERT INTO sandboxes VALUES ({','.join('?' * len(row))})", list(row.values()))
    migrate(database)
    assert [text for (text,) in database.execute("SELECT limits FROM sandboxes")] == [
        '{"memory_mib":512}',
        '{"vcpus":1.5}',
    ]
    database.close()
