"""Stored states examined, and checksums written in the background."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from atoll.supervisor.api.acts import RequestActs
from atoll.supervisor.api.reply import NDJSON, Report, answer
from atoll.supervisor.integrity.background_checksums import BackgroundChecksums
from atoll.supervisor.integrity.checksums import CHECKSUMS_FILE
from atoll.supervisor.state.tasks import Tasks
from atoll.types import Progress
from tests.unit.supervisor.harness import Harness, with_harness


async def snapshot(harness: Harness, name: str) -> tuple[str, Path, Path]:
    """A snapshot of a new sandbox with one file: the layer's id, the snapshot's memory, the file in the layer."""
    before = set(harness.layers.ids())
    ref = (await harness.create())["sandbox_id"]
    upper = harness.home.sandboxes / ref / "d1" / "upper"
    upper.mkdir(parents=True, exist_ok=True)
    (upper / "file").write_bytes(b"content")
    made = (await harness.ask("POST", f"/v1/sandboxes/{ref}/snapshots", {"name": name})).json
    (layer,) = set(harness.layers.ids()) - before
    memory = harness.home.snapshots / made["snapshot_id"] / "checkpoint"
    return layer, memory, harness.layers.path(layer) / "file"


async def verify(harness: Harness, *names: str) -> dict[str, Any]:
    answer = await harness.ask("POST", "/v1/snapshots/verify", {"names": list(names)})
    assert answer.status == 200, answer.body
    found: dict[str, Any] = answer.json
    return found


def states(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(part["kind"], part["state"]) for part in report["parts"]]


@with_harness
async def test_a_digest_stays_the_same_and_differs_for_another_state(harness: Harness) -> None:
    await snapshot(harness, "one")
    await snapshot(harness, "other")

    async def digest(name: str) -> str:
        answered = await harness.ask("GET", f"/v1/snapshots/{name}/digest")
        assert answered.status == 200, answered.body
        return str(answered.json)

    one = await digest("one")
    assert (len(one), await digest("one")) == (64, one)
    assert await digest("other") != one
    assert (await harness.ask("GET", "/v1/snapshots/none/digest")).status == 404


@with_harness
async def test_a_snapshot_whole_until_a_byte_of_its_layer_changes(harness: Harness) -> None:
    layer, _, file = await snapshot(harness, "kept")
    assert states(await verify(harness, "kept")) == [("memory", "whole"), ("layer", "recorded")]
    report = await verify(harness, "kept")
    assert report["whole"]
    assert states(report) == [("memory", "whole"), ("layer", "whole")]
    file.write_bytes(b"Content")
    report = await verify(harness, "kept")
    assert not report["whole"]
    part = report["parts"][1]
    assert (part["name"], part["state"], part["needed_by"]) == (layer, "damaged", ["kept"])
    (damage,) = part["damages"]
    assert damage["path"] == "file"
    assert damage["what"].startswith("its content has changed")


@with_harness
async def test_a_damaged_memory_is_named_and_the_other_snapshot_whole(harness: Harness) -> None:
    _, memory, _ = await snapshot(harness, "one")
    await snapshot(harness, "two")
    state = next(path for path in memory.iterdir() if path.name not in (CHECKSUMS_FILE, "boot"))
    state.write_bytes(state.read_bytes() + b"more")
    report = await verify(harness)
    damaged = [part for part in report["parts"] if part["state"] == "damaged"]
    assert [(part["kind"], part["name"]) for part in damaged] == [("memory", "one")]
    assert damaged[0]["damages"][0]["path"] == state.name
    assert (await verify(harness, "two"))["whole"]


@with_harness
async def test_a_layer_that_many_stand_on_is_read_once(harness: Harness) -> None:
    layer, _, _ = await snapshot(harness, "kept")
    for _ in range(3):
        await harness.create(from_snapshot="kept")
    parts = [part for part in (await verify(harness))["parts"] if part["kind"] == "layer"]
    assert [part["name"] for part in parts] == [layer]
    assert len(parts[0]["needed_by"]) == 4


@with_harness
async def test_a_missing_layer_is_damage_and_no_failure(harness: Harness) -> None:
    layer, _, file = await snapshot(harness, "kept")
    await verify(harness)
    file.unlink()
    harness.layers.path(layer).rmdir()
    part = (await verify(harness, "kept"))["parts"][1]
    assert part["state"] == "damaged"
    assert "cannot be read" in part["damages"][0]["what"]


@with_harness
async def test_checksums_that_were_damaged_are_told_of_and_not_renewed(harness: Harness) -> None:
    layer, _, _ = await snapshot(harness, "kept")
    await verify(harness)
    file = harness.layers.checksums.path(layer)
    written = file.read_bytes()
    file.write_bytes(written[:-1] + bytes([written[-1] ^ 1]))
    for _ in range(2):
        part = (await verify(harness, "kept"))["parts"][1]
        assert part["state"] == "damaged"
        assert "the file of checksums itself" in part["damages"][0]["what"]


@with_harness
async def test_checksums_go_with_its_layer(harness: Harness) -> None:
    layer, _, _ = await snapshot(harness, "kept")
    await verify(harness)
    assert harness.layers.checksums.has(layer)
    await harness.ask("DELETE", "/v1/snapshots/kept")
    assert list(harness.layers.directory.iterdir()) == []


@with_harness
async def test_checksums_are_written_in_the_background_and_again_after_a_restart(harness: Harness) -> None:
    layer, _, _ = await snapshot(harness, "kept")
    BackgroundChecksums(harness.system.trees, harness.system.tasks, 1e9, look_s=0.01).start()
    await harness.until(lambda: harness.layers.checksums.has(layer))
    assert states(await verify(harness))[-1] == ("layer", "whole")
    harness.layers.checksums.drop([layer])
    await harness.crash()
    await harness.start()
    BackgroundChecksums(harness.system.trees, harness.system.tasks, 1e9, look_s=0.01).start()
    await harness.until(lambda: harness.layers.checksums.has(layer))


@with_harness
async def test_an_examination_stops_the_checksums_in_the_background(harness: Harness) -> None:
    layer, _, _ = await snapshot(harness, "kept")
    # At this rate the background would take hours.
    background = BackgroundChecksums(harness.system.trees, harness.system.tasks, 10, look_s=0.01)
    background.start()
    await harness.until(lambda: background.busy)
    async with background.stopped():
        assert not harness.layers.checksums.has(layer)
        await harness.until(lambda: not background.busy)
    await harness.until(lambda: background.busy)


@with_harness
async def test_an_examination_ends_with_its_client(harness: Harness) -> None:
    ended = asyncio.Event()

    async def examine(report: Report) -> None:
        report(Progress(step="reading"))
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    app = SimpleNamespace(
        state=SimpleNamespace(acts=RequestActs(harness.system.acts, harness.system.inventory))
    )
    scope = {"type": "http", "method": "GET", "route": Route("/v1/volumes", examine), "app": app}
    request = Request({**scope, "headers": [(b"accept", NDJSON.encode())]})
    response = await answer(request, Tasks(), examine, ends_with_client=True)
    assert isinstance(response, StreamingResponse)
    lines = cast("AsyncGenerator[bytes, None]", response.body_iterator)
    assert b"reading" in await anext(lines)
    await lines.aclose()
    async with asyncio.timeout(60):
        await ended.wait()
