"""Files of a home that a failing disk has made to something that is not even text."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from pathlib import Path

import pytest

from atoll.errors import DamagedError
from atoll.host import Home, find_holder
from atoll.images import Images
from atoll.snapshots import Layers
from atoll.supervisor.integrity.checksums import CHECKSUMS_FILE, CheckpointChecksums
from atoll.supervisor.lifecycle.checkpoint_files import FLOWS, read_flows
from atoll.supervisor.state.database import Database
from atoll.supervisor.state.row_copies import RowCopies
from atoll.supervisor.state.rows import SandboxRow, SnapshotRow
from tests.unit.supervisor.harness import Harness, with_harness

# A string in JSON, but no UTF-8.
NO_TEXT = b'"\xff\xfe"'


def test_what_is_no_text_is_as_damaged_as_what_is_no_json(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (tmp_path / FLOWS).write_bytes(NO_TEXT)
    assert read_flows(tmp_path) == []
    (tmp_path / "sandboxes" / "one").mkdir(parents=True)
    (tmp_path / "sandboxes" / "one" / "row.json").write_bytes(NO_TEXT)
    copies = RowCopies(Home(tmp_path))
    assert copies.of(SandboxRow, "one") is None
    assert list(copies.all()) == []
    (tmp_path / "linked").write_bytes(NO_TEXT)
    assert Layers.settled(tmp_path)
    (home.images / "index.json").write_bytes(NO_TEXT)
    assert Images(home.images).list() == []
    (home.run / "holder.json").write_bytes(NO_TEXT)
    assert find_holder(home) is None
    (tmp_path / CHECKSUMS_FILE).write_bytes(NO_TEXT)
    with pytest.raises(DamagedError):
        CheckpointChecksums().check(tmp_path, small=True)


@with_harness
async def test_a_row_that_is_no_text_any_more_is_read_from_its_copy(harness: Harness) -> None:
    made = await harness.create(metadata={"of": "mine"})
    await harness.crash()
    (harness.home.bin / "known.json").write_bytes(NO_TEXT)
    database = sqlite3.connect(harness.home.database)
    for column in ("metadata", "cwd"):
        database.execute(f"UPDATE sandboxes SET {column} = CAST(x'22ff22' AS TEXT)")
    database.commit()
    database.close()
    await harness.start()
    told = (await harness.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
    assert (told["metadata"], told["state"]) == ({"of": "mine"}, "running")


@with_harness
async def test_what_a_snapshot_stands_on_counts_though_its_copy_still_says_what_was_before(
    harness: Harness,
) -> None:
    made = await harness.create()
    path = f"/v1/sandboxes/{made['sandbox_id']}/snapshots"
    snapshot = (await harness.ask("POST", path, {})).json
    copy = harness.home.snapshots / snapshot["snapshot_id"] / "row.json"
    await harness.until(copy.is_file)
    before = copy.read_bytes()
    os.rename(
        harness.layers.path(harness.system.inventory.snapshots()[0].stack[0]), harness.layers.path("merged")
    )
    inventory = harness.system.inventory
    await asyncio.gather(
        inventory.own_snapshot(snapshot["snapshot_id"], "build"), inventory.restack(lambda stack: ("merged",))
    )
    assert [(row.stack, row.build_id) for row in inventory.snapshots()] == [(("merged",), "build")]
    await harness.crash()
    copy.write_bytes(before)  # as kill -9 leaves it, right after the row was written
    database = Database(harness.home.database, RowCopies(harness.home))
    await database.open()
    (row,) = await database.all(SnapshotRow)
    await database.aclose()
    await harness.start()
    assert (row.stack, row.build_id) == (("merged",), "build")
