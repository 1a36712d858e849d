"""Files of a home that a failing disk has made to something that is not even text."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from atoll.errors import DamagedError
from atoll.host import Home, find_holder
from atoll.images import Images
from atoll.snapshots import Layers
from atoll.supervisor.captures import FLOWS, read_flows
from atoll.supervisor.copies import Copies
from atoll.supervisor.rows import SandboxRow
from atoll.supervisor.seals import SEAL, Seals
from tests.unit.supervisor.world import World, in_world

# A string in JSON, but no UTF-8.
NO_TEXT = b'"\xff\xfe"'


def test_what_is_no_text_is_as_damaged_as_what_is_no_json(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.make()
    (tmp_path / FLOWS).write_bytes(NO_TEXT)
    assert read_flows(tmp_path) == []
    (tmp_path / "sandboxes" / "one").mkdir(parents=True)
    (tmp_path / "sandboxes" / "one" / "row.json").write_bytes(NO_TEXT)
    copies = Copies(Home(tmp_path))
    assert copies.of(SandboxRow, "one") is None
    assert list(copies.all()) == []
    (tmp_path / "linked").write_bytes(NO_TEXT)
    assert Layers.settled(tmp_path)
    (home.images / "index.json").write_bytes(NO_TEXT)
    assert Images(home.images).list() == []
    (home.run / "holder.json").write_bytes(NO_TEXT)
    assert find_holder(home) is None
    (tmp_path / SEAL).write_bytes(NO_TEXT)
    with pytest.raises(DamagedError):
        Seals().check(tmp_path, small=True)


@in_world
async def test_a_row_that_is_no_text_any_more_is_read_from_its_copy(world: World) -> None:
    made = await world.create(metadata={"of": "mine"})
    await world.crash()
    (world.home.bin / "known.json").write_bytes(NO_TEXT)
    database = sqlite3.connect(world.home.database)
    for column in ("metadata", "cwd"):
        database.execute(f"UPDATE sandboxes SET {column} = CAST(x'22ff22' AS TEXT)")
    database.commit()
    database.close()
    await world.start()
    told = (await world.ask("GET", f"/v1/sandboxes/{made['sandbox_id']}")).json
    assert (told["metadata"], told["state"]) == ({"of": "mine"}, "running")
