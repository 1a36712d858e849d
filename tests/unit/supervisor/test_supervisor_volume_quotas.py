"""Quotas of volumes, with machines that only know what they were told."""

from __future__ import annotations

import asyncio
import os
import time
from functools import partial
from itertools import count
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from atoll.engines import VolumeUse
from atoll.testing.fake_engine import FakeMachine
from tests.unit.supervisor.harness import Harness, with_harness

MIB = 1 << 20


async def made(harness: Harness) -> str:
    answer = await harness.ask("POST", "/v1/volumes", {"name": "data"})
    volume_id: str = answer.json["volume_id"]
    return volume_id


async def put(harness: Harness, name: str, mib: int) -> tuple[int, str | None]:
    """Upload a file of so many MiB."""
    answer = await harness.ask("PUT", f"/v1/volumes/data/file?path={name}&replace=1", "x" * (mib << 20))
    return answer.status, answer.json.get("code")


@with_harness
async def test_a_full_volume_lets_nothing_new_in_until_something_goes(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 4})
    assert await put(harness, "a", 3) == (200, None)
    assert await put(harness, "b", 2) == (429, "quota")
    assert await put(harness, "b", 2) == (429, "quota")
    shown_now = await harness.ask("GET", "/v1/volumes/data/dir?path=/")
    assert [entry["name"] for entry in shown_now.json] == ["a"]
    assert (await harness.ask("DELETE", "/v1/volumes/data/entry?path=a")).status == 204
    assert await put(harness, "b", 2) == (200, None)


@with_harness
async def test_what_a_file_replaced_counts_no_more(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 5})
    for _ in range(5):
        assert await put(harness, "a", 2) == (200, None)
    # Until it is replaced it counts beside the new one.
    assert await put(harness, "a", 4) == (429, "quota")


@with_harness
async def test_a_sandbox_that_could_write_to_a_full_volume_is_not_made(harness: Harness) -> None:
    volume = await made(harness)
    sandbox = await harness.create(volumes={"/data": "data"})
    reader = await harness.create(volumes={"/data": {"volume": "data", "read_only": True}})
    await harness.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots", {"name": "kept"})
    assert await put(harness, "a", 2) == (200, None)
    changed = await harness.ask("PUT", f"/v1/volumes/{volume}/quota", {"quota_mib": 1})
    assert (changed.status, changed.json["quota_mib"]) == (200, 1)
    for path, wanted in (
        ("/v1/sandboxes", {"volumes": {"/data": "data"}}),
        ("/v1/sandboxes", {"from_snapshot": "kept"}),
        (f"/v1/sandboxes/{sandbox['sandbox_id']}/fork", {}),
    ):
        refused = await harness.ask("POST", path, wanted)
        assert (refused.status, refused.json["code"]) == (429, "quota")
    assert "'data'" in refused.json["message"]
    assert (await harness.ask("POST", f"/v1/sandboxes/{reader['sandbox_id']}/fork", {})).status == 200
    for state in ("suspend", "resume"):
        assert (await harness.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/{state}")).status == 200
    assert (await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": None})).json["quota_mib"] is None
    await harness.create(from_snapshot="kept")


async def made_with_quota(harness: Harness, quota_mib: int) -> str:
    answer = await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": quota_mib})
    volume_id: str = answer.json["volume_id"]
    return volume_id


def rooms_of(harness: Harness, sandbox: dict[str, Any]) -> dict[str, int] | None:
    """What a guest's kernel was told that may be added to its volumes, in MiB."""
    budgets = harness.machine_of(sandbox["sandbox_id"]).budgets
    return None if budgets is None else {path: budget.size_bytes >> 20 for path, budget in budgets.items()}


def chunks_of(harness: Harness, *sandboxes: dict[str, Any]) -> list[int | None]:
    """What guests' kernels were told that may be added to the volume at /data, in MiB."""
    return [(rooms_of(harness, each) or {}).get("/data") for each in sandboxes]


def needs(harness: Harness, sandbox: dict[str, Any], mib: int = 0, **use: int) -> None:
    """Have a guest's kernel ask for so much, and say so when it is asked."""
    machine = harness.machine_of(sandbox["sandbox_id"])
    machine.volume_uses = MappingProxyType({"/data": VolumeUse(needed_bytes=mib * MIB, **use)})
    assert machine.rooms_event_fd is not None
    os.eventfd_write(machine.rooms_event_fd, max(1, mib * MIB))


@with_harness
async def test_each_that_may_write_gets_a_chunk_of_what_is_left(harness: Harness) -> None:
    volume = await made_with_quota(harness, 200)
    reader = await harness.create(volumes={"/data": {"volume": "data", "read_only": True}})
    one = await harness.create(volumes={"/data": "data"})
    await harness.until(lambda: chunks_of(harness, one) == [64])
    both = await harness.create(volumes={"/data": "data", "/d": "data"})
    await harness.until(lambda: rooms_of(harness, both) == {"/data": 32, "/d": 32})
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 12})
    await harness.until(lambda: chunks_of(harness, one, both) == [6, 3])
    assert await put(harness, "a", 4) == (200, None)
    await harness.until(lambda: chunks_of(harness, one, both) == [3, 1])
    told = harness.machine_of(one["sandbox_id"]).budgets
    assert told is not None
    assert (told["/data"].left_bytes >> 20, told["/data"].quota_bytes >> 20) == (7, 12)
    # Nobody is given less than nothing.
    (harness.system.paths.volume_data(volume) / "b").write_bytes(bytes(20 * MIB))
    needs(harness, one)
    await harness.until(lambda: chunks_of(harness, one, both) == [0, 0])
    (harness.system.paths.volume_data(volume) / "b").unlink()
    needs(harness, one)
    await harness.until(lambda: chunks_of(harness, one, both) == [3, 1])
    assert (await harness.ask("DELETE", f"/v1/sandboxes/{both['sandbox_id']}")).status == 204
    await harness.until(lambda: chunks_of(harness, one) == [7])
    assert rooms_of(harness, reader) is None
    for state in ("suspend", "resume"):
        assert (await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/{state}")).status == 200
    await harness.until(lambda: chunks_of(harness, one) == [7])


@with_harness
async def test_who_needs_more_gets_nearly_all_that_is_left(harness: Harness) -> None:
    await made_with_quota(harness, 800)
    one, other = [await harness.create(volumes={"/data": "data"}) for _ in range(2)]
    await harness.until(lambda: chunks_of(harness, one, other) == [64, 64])
    needs(harness, one, 500)
    await harness.until(lambda: chunks_of(harness, one, other) == [500, 64])
    needs(harness, one, 5)
    await harness.until(lambda: chunks_of(harness, one, other) == [64, 64])
    # Who needs more than there is gets what there is.
    needs(harness, one, 5000)
    await harness.until(lambda: chunks_of(harness, one, other) == [736, 64])
    needs(harness, other, 5000)
    await harness.until(lambda: chunks_of(harness, one, other) == [400, 400])
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 80})
    needs(harness, other)
    await harness.until(lambda: chunks_of(harness, one, other) == [70, 10])


@with_harness
async def test_chunks_are_together_no_more_than_the_last_measurement_found_left(harness: Harness) -> None:
    await made_with_quota(harness, 200)
    # A measurement takes so long that there is no second one.
    slow = SimpleNamespace(thread_time=count(0, 1000).__next__, monotonic=time.monotonic)
    with patch("atoll.supervisor.monitors.volumes.time", slow):
        one = await harness.create(volumes={"/data": "data"})
        machine_id = harness.machine_of(one["sandbox_id"]).machine_id

        def told(times: int) -> bool:
            return harness.host.methods(machine_id).count("limit_volumes") == times

        await harness.until(partial(told, 1))
        needs(harness, one, 32)
        await harness.until(partial(told, 2))
        needs(harness, one, 64)
        await harness.until(partial(told, 3))
        assert chunks_of(harness, one) == [64]
        needs(harness, one, 64)  # there are but 8 MiB
        await asyncio.sleep(0.3)
        assert told(3)
        assert harness.host.methods(machine_id).count("measure_volumes") == 1


@with_harness
async def test_what_a_measurement_may_have_missed_is_handed_out_by_the_next_one(harness: Harness) -> None:
    await made_with_quota(harness, 200)
    slow = SimpleNamespace(thread_time=count(0, 1000).__next__, monotonic=time.monotonic)
    with (
        patch("atoll.supervisor.monitors.volumes.time", slow),
        patch.object(FakeMachine, "missed_bytes", 100 * MIB),
    ):
        one = await harness.create(volumes={"/data": "data"})
        await harness.until(lambda: chunks_of(harness, one) == [64])
        needs(harness, one)
        await asyncio.sleep(0.3)
        methods = harness.host.methods(harness.machine_of(one["sandbox_id"]).machine_id)
        assert methods.count("limit_volumes") == 1


@with_harness
async def test_what_no_measurement_sees_counts(harness: Harness) -> None:
    await made_with_quota(harness, 120)
    one, other = [await harness.create(volumes={"/data": "data"}) for _ in range(2)]
    await harness.until(lambda: chunks_of(harness, one, other) == [60, 60])
    needs(harness, one, nameless_bytes=20 * MIB)
    await harness.until(lambda: chunks_of(harness, one, other) == [50, 50])
    # What it may still add counts beyond a chunk.
    needs(harness, one, rest_bytes=64 * MIB)
    await harness.until(lambda: chunks_of(harness, one, other) == [60, 60])
    needs(harness, one, rest_bytes=74 * MIB)
    await harness.until(lambda: chunks_of(harness, one, other) == [55, 55])


@with_harness
async def test_one_that_does_not_answer_is_told_later(harness: Harness) -> None:
    await made_with_quota(harness, 120)
    one, other = [await harness.create(volumes={"/data": "data"}) for _ in range(2)]
    await harness.until(lambda: chunks_of(harness, one, other) == [60, 60])
    harness.machine_of(one["sandbox_id"]).volume_uses = MappingProxyType({})
    with patch("atoll.supervisor.monitors.volumes._AGAIN_S", 0.3):
        harness.host.fail_next("measure_volumes")
        needs(harness, other, nameless_bytes=20 * MIB)
        await harness.until(lambda: chunks_of(harness, one, other) == [60, 64])
        await harness.until(lambda: chunks_of(harness, one, other) == [50, 50])


@with_harness
async def test_a_new_quota_is_measured_twice_since_nothing_was_limited_before(harness: Harness) -> None:
    await made(harness)
    one = await harness.create(volumes={"/data": "data"})
    await harness.until(lambda: rooms_of(harness, one) == {"/data": 1 << 40})
    machine = harness.machine_of(one["sandbox_id"])
    assert "measure_volumes" not in harness.host.methods(machine.machine_id)
    machine.volume_uses = MappingProxyType({"/data": VolumeUse(rest_bytes=1 << 60)})
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 7})
    await harness.until(lambda: harness.host.methods(machine.machine_id).count("measure_volumes") > 1)
    assert chunks_of(harness, one) == [7]


@with_harness
async def test_without_a_quota_nothing_is_limited_until_it_gets_one(harness: Harness) -> None:
    await made(harness)
    one = await harness.create(volumes={"/data": "data"})
    await harness.until(lambda: rooms_of(harness, one) == {"/data": 1 << 40})
    assert not any(bind.limited for bind in harness.machine_of(one["sandbox_id"]).plan.binds)
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 7})
    await harness.until(lambda: rooms_of(harness, one) == {"/data": 7})
    other = await harness.create(volumes={"/data": "data"})
    assert [bind.target for bind in harness.machine_of(other["sandbox_id"]).plan.binds if bind.limited] == [
        "/data"
    ]
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": None})
    await harness.until(lambda: rooms_of(harness, one) == rooms_of(harness, other) == {"/data": 1 << 40})


@with_harness
async def test_a_machine_that_cannot_be_told_for_a_while_is_told_later(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 4})
    harness.host.fail_next("measure_volumes")
    with patch("atoll.supervisor.monitors.volumes._AGAIN_S", 0.01):
        one = await harness.create(volumes={"/data": "data"})
        await harness.until(lambda: rooms_of(harness, one) == {"/data": 4})


@with_harness
async def test_a_quota_is_a_number_and_is_kept(harness: Harness) -> None:
    for wrong in (-1, 1.5, "1", True, 1 << 40):
        for method, path, more in (
            ("POST", "/v1/volumes", {"name": "data"}),
            ("PUT", "/v1/volumes/none/quota", {}),
        ):
            refused = await harness.ask(method, path, {**more, "quota_mib": wrong})
            assert refused.status in (400, 404)
    volume = await made(harness)
    assert (await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 7})).status == 200
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", f"/v1/volumes/{volume}")).json["quota_mib"] == 7
