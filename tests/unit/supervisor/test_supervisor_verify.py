"""Stored states examined, and checksums written in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import StreamingResponse

from atoll.supervisor.api.reply import NDJSON, Report, answer
from atoll.supervisor.state.tasks import Tasks
from atoll.supervisor.storage.background_checksums import BackgroundChecksums
from atoll.supervisor.storage.checksums import CHECKSUMS_FILE
from atoll.types import Progress
from tests.unit.supervisor.world import World, in_world


async def snapshot(world: World, name: str) -> tuple[str, Path, Path]:
    """A snapshot of a new sandbox with one file: the layer's id, the snapshot's memory, the file in the layer."""
    before = set(world.layers.ids())
    ref = (await world.create())["sandbox_id"]
    upper = world.home.sandboxes / ref / "d1" / "upper"
    upper.mkdir(parents=True, exist_ok=True)
    (upper / "file").write_bytes(b"content")
    made = (await world.ask("POST", f"/v1/sandboxes/{ref}/snapshots", {"name": name})).json
    (layer,) = set(world.layers.ids()) - before
    memory = world.home.snapshots / made["snapshot_id"] / "checkpoint"
    return layer, memory, world.layers.path(layer) / "file"


async def verify(world: World, *names: str) -> dict[str, Any]:
    answer = await world.ask("POST", "/v1/snapshots/verify", {"names": list(names)})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def states(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(part["kind"], part["state"]) for part in report["parts"]]


@in_world
async def test_a_snapshot_is_whole_until_a_byte_of_its_layer_changes(world: World) -> None:
    layer, _, file = await snapshot(world, "kept")
    assert states(await verify(world, "kept")) == [("memory", "whole"), ("layer", "recorded")]
    report = await verify(world, "kept")
    assert report["whole"]
    assert states(report) == [("memory", "whole"), ("layer", "whole")]
    file.write_bytes(b"Content")
    report = await verify(world, "kept")
    assert not report["whole"]
    part = report["parts"][1]
    assert (part["name"], part["state"], part["needed_by"]) == (layer, "damaged", ["kept"])
    (damage,) = part["damages"]
    assert damage["path"] == "file"
    assert damage["what"].startswith("its content has changed")


@in_world
async def test_a_damaged_memory_is_named_and_the_other_snapshot_is_whole(world: World) -> None:
    _, memory, _ = await snapshot(world, "one")
    await snapshot(world, "two")
    state = next(path for path in memory.iterdir() if path.name not in (CHECKSUMS_FILE, "boot"))
    state.write_bytes(state.read_bytes() + b"more")
    report = await verify(world)
    damaged = [part for part in report["parts"] if part["state"] == "damaged"]
    assert [(part["kind"], part["name"]) for part in damaged] == [("memory", "one")]
    assert damaged[0]["damages"][0]["path"] == state.name
    assert (await verify(world, "two"))["whole"]


@in_world
async def test_a_layer_that_many_stand_on_is_read_once(world: World) -> None:
    layer, _, _ = await snapshot(world, "kept")
    for _ in range(3):
        await world.create(from_snapshot="kept")
    parts = [part for part in (await verify(world))["parts"] if part["kind"] == "layer"]
    assert [part["name"] for part in parts] == [layer]
    assert len(parts[0]["needed_by"]) == 4


@in_world
async def test_a_missing_layer_is_damage_and_no_failure(world: World) -> None:
    layer, _, file = await snapshot(world, "kept")
    await verify(world)
    file.unlink()
    world.layers.path(layer).rmdir()
    part = (await verify(world, "kept"))["parts"][1]
    assert part["state"] == "damaged"
    assert "cannot be read" in part["damages"][0]["what"]


@in_world
async def test_checksums_that_were_damaged_are_told_of_and_not_renewed(world: World) -> None:
    layer, _, _ = await snapshot(world, "kept")
    await verify(world)
    file = world.layers.checksums.path(layer)
    written = file.read_bytes()
    file.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    for _ in range(2):
        part = (await verify(world, "kept"))["parts"][1]
        assert part["state"] == "damaged"
        assert "the file of checksums itself" in part["damages"][0]["what"]


@in_world
async def test_checksums_go_with_its_layer(world: World) -> None:
    layer, _, _ = await snapshot(world, "kept")
    await verify(world)
    assert world.layers.checksums.has(layer)
    await world.ask("DELETE", "/v1/snapshots/kept")
    assert list(world.layers.directory.iterdir()) == []


@in_world
async def test_checksums_are_written_in_the_background_and_again_after_a_restart(world: World) -> None:
    layer, _, _ = await snapshot(world, "kept")
    BackgroundChecksums(world.system.trees, world.system.tasks, 1e9, look_s=0.01).start()
    await world.until(lambda: world.layers.checksums.has(layer))
    assert states(await verify(world))[-1] == ("layer", "whole")
    world.layers.checksums.drop([layer])
    await world.crash()
    await world.start()
    BackgroundChecksums(world.system.trees, world.system.tasks, 1e9, look_s=0.01).start()
    await world.until(lambda: world.layers.checksums.has(layer))


@in_world
async def test_an_examination_stops_the_checksums_in_the_background(world: World) -> None:
    layer, _, _ = await snapshot(world, "kept")
    # At this rate the background would take hours.
    background = BackgroundChecksums(world.system.trees, world.system.tasks, 10, look_s=0.01)
    background.start()
    await world.until(lambda: background.busy)
    async with background.stopped():
        assert not world.layers.checksums.has(layer)
        await world.until(lambda: not background.busy)
    await world.until(lambda: background.busy)


@in_world
async def test_an_examination_ends_with_its_client(_: World) -> None:
    ended = asyncio.Event()

    async def examine(report: Report) -> None:
        report(Progress(step="reading"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    request = Request({"type": "http", "headers": [(b"accept", NDJSON.encode())]})
    response = await answer(request, Tasks(), examine, ends_with_client=True)
    assert isinstance(response, StreamingResponse)
    lines = cast("AsyncGenerator[bytes, None]", response.body_iterator)
    assert b"reading" in await anext(lines)
    await lines.aclose()
    async with asyncio.timeout(60):
        await ended.wait()
