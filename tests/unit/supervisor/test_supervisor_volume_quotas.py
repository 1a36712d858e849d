"""Quotas of volumes, with machines that only know what they were told."""

from __future__ import annotations

import os
import time
from functools import partial
from types import MappingProxyType, SimpleNamespace
from typing import Any
from unittest.mock import patch

from atoll.engines import VolumeUse
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


def clock(now_s: float) -> Any:
    """A clock that stands still until a test moves its ``s``."""
    made: Any = SimpleNamespace(thread_time=lambda: 0.0, s=now_s)
    made.monotonic = lambda: made.s
    return made


def rooms_of(harness: Harness, sandbox: dict[str, Any]) -> dict[str, int] | None:
    """What a guest's kernel was told that may be added to its volumes, in MiB."""
    rooms = harness.machine_of(sandbox["sandbox_id"]).rooms
    return None if rooms is None else {path: room.size_bytes >> 20 for path, room in rooms.items()}


def ask_for_room(harness: Harness, sandbox: dict[str, Any]) -> None:
    event_fd = harness.machine_of(sandbox["sandbox_id"]).rooms_event_fd
    assert event_fd is not None
    os.eventfd_write(event_fd, 1)


@with_harness
async def test_what_is_left_of_a_quota_is_divided_among_those_that_may_write(harness: Harness) -> None:
    volume = (await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 12})).json["volume_id"]
    now = clock(1000.0)
    with patch("atoll.supervisor.monitors.volumes.time", now):
        reader = await harness.create(volumes={"/data": {"volume": "data", "read_only": True}})
        one = await harness.create(volumes={"/data": "data"})
        await harness.until(lambda: rooms_of(harness, one) == {"/data": 12})
        other = await harness.create(volumes={"/data": "data"})

        def both() -> tuple[dict[str, int] | None, dict[str, int] | None]:
            return rooms_of(harness, one), rooms_of(harness, other)

        await harness.until(lambda: both() == ({"/data": 6}, {"/data": 6}))
        assert await put(harness, "a", 4) == (200, None)
        await harness.until(lambda: both() == ({"/data": 3}, {"/data": 3}))
        (harness.system.paths.volume_data(volume) / "b").write_bytes(bytes(2 << 20))
        now.s += 60
        # Who asks gets nearly all of it, until another one asks.
        ask_for_room(harness, one)
        await harness.until(lambda: both() == ({"/data": 5}, {"/data": 0}))
        told = harness.machine_of(other["sandbox_id"]).rooms
        assert told is not None
        assert (told["/data"].size_bytes, told["/data"].left_bytes >> 20) == (64 << 10, 5)
        ask_for_room(harness, other)
        await harness.until(lambda: both() == ({"/data": 2}, {"/data": 2}))
        assert (await harness.ask("DELETE", f"/v1/sandboxes/{other['sandbox_id']}")).status == 204
        await harness.until(lambda: rooms_of(harness, one) == {"/data": 5})
        await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 22})
        await harness.until(lambda: rooms_of(harness, one) == {"/data": 15})
        told = harness.machine_of(one["sandbox_id"]).rooms
        assert told is not None
        assert told["/data"].quota_bytes == 22 << 20
        assert rooms_of(harness, reader) is None
        assert (await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/suspend")).status == 200
        assert (await harness.ask("POST", f"/v1/sandboxes/{one['sandbox_id']}/resume")).status == 200
        await harness.until(lambda: rooms_of(harness, one) == {"/data": 15})


def parts_of(harness: Harness, *sandboxes: dict[str, Any]) -> list[tuple[int, bool] | None]:
    """What guests' kernels were told that may be added to the volume at /data, in MiB, and whether that is sure."""
    told = [harness.machine_of(each["sandbox_id"]).rooms for each in sandboxes]
    return [
        None if rooms is None else (rooms["/data"].size_bytes >> 20, rooms["/data"].sure) for rooms in told
    ]


def uses(harness: Harness, sandbox: dict[str, Any], use: VolumeUse) -> None:
    """Have a guest's kernel say what a measurement may have missed, and ask for one."""
    harness.machine_of(sandbox["sandbox_id"]).volume_uses = MappingProxyType({"/data": use})
    ask_for_room(harness, sandbox)


@with_harness
async def test_what_a_measurement_may_have_missed_of_any_guest_counts(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 12})
    one = await harness.create(volumes={"/data": "data"})
    other = await harness.create(volumes={"/data": "data"})

    async def parts(*wanted: tuple[int, bool]) -> None:
        await harness.until(lambda: parts_of(harness, one, other) == list(wanted))

    # However long a step takes, both have asked lately.
    with patch("atoll.supervisor.monitors.volumes._ACTIVE_S", 3600.0):
        await parts((6, True), (6, True))
        uses(harness, one, VolumeUse(held_bytes=2 * MIB))
        await parts((5, True), (5, True))
        uses(harness, one, VolumeUse(4 * MIB, held_bytes=2 * MIB))
        await parts((3, False), (3, False))
        # Files may have been missed: nobody gets more than all had together.
        uses(harness, one, VolumeUse(moved=True, size_bytes=MIB))
        await parts((2, False), (2, False))
        uses(harness, one, VolumeUse(moved=True, size_bytes=-4 * MIB))
        await parts((-1, False), (-1, False))
        uses(harness, one, VolumeUse())
        await parts((6, True), (6, True))


@with_harness
async def test_a_file_without_a_name_counts_once_however_many_have_it_open(harness: Harness) -> None:
    await harness.ask("POST", "/v1/volumes", {"name": "data", "quota_mib": 12})
    several = [await harness.create(volumes={"/data": "data"}) for _ in range(3)]
    await harness.until(lambda: parts_of(harness, *several) == [(4, True)] * 3)
    for each in several:
        # One of them has not seen yet that it was written to.
        size_bytes = (6 if each is several[0] else 3) * MIB
        uses(harness, each, VolumeUse(nameless={(1, 7): size_bytes}))
    # Its name may have been measured before it went.
    await harness.until(lambda: parts_of(harness, *several) in ([(2, False)] * 3, [(2, True)] * 3))
    ask_for_room(harness, several[0])
    await harness.until(lambda: parts_of(harness, *several) == [(2, True)] * 3)
    uses(harness, several[1], VolumeUse(nameless={(1, 7): 3 * MIB, (2, 7): 3 * MIB}))
    await harness.until(lambda: parts_of(harness, *several) == [(1, False)] * 3)


@with_harness
async def test_what_a_guest_that_only_reads_keeps_open_counts(harness: Harness) -> None:
    await made_with_quota(harness, 12)
    reader = await harness.create(volumes={"/r": {"volume": "data", "read_only": True}})
    both = await harness.create(volumes={"/data": "data", "/r": {"volume": "data", "read_only": True}})
    await harness.until(lambda: parts_of(harness, both) == [(12, True)])
    assert rooms_of(harness, reader) is None
    for each, number in ((reader, 7), (both, 8)):
        use = VolumeUse(nameless={(1, number): 3 * MIB})
        harness.machine_of(each["sandbox_id"]).volume_uses = MappingProxyType({"/r": use})
    ask_for_room(harness, both)
    await harness.until(lambda: parts_of(harness, both) == [(6, False)])
    assert (await harness.ask("DELETE", f"/v1/sandboxes/{reader['sandbox_id']}")).status == 204
    ask_for_room(harness, both)
    await harness.until(lambda: parts_of(harness, both) == [(9, True)])


@with_harness
async def test_a_guest_that_only_reads_stops_nobody_when_it_does_not_answer(harness: Harness) -> None:
    volume = await made_with_quota(harness, 12)
    reader = await harness.create(volumes={"/r": {"volume": "data", "read_only": True}})
    one = await harness.create(volumes={"/data": "data"})
    path = f"/v1/sandboxes/{reader['sandbox_id']}"
    machine = harness.machine_of(reader["sandbox_id"])
    machine.volume_uses = MappingProxyType({"/r": VolumeUse(nameless={(1, 7): 3 * MIB})})
    await harness.until(lambda: parts_of(harness, one) in ([(9, True)], [(9, False)]))
    kept = harness.system.paths.volume_data(volume) / "a"
    kept.write_bytes(bytes(8 * MIB))
    ask_for_room(harness, one)
    await harness.until(lambda: parts_of(harness, one) == [(0, True)])
    # What it said before counts, and what somebody has removed is room again.
    kept.unlink()
    assert (await harness.ask("POST", f"{path}/pause")).status == 200
    asked = harness.host.methods(machine.machine_id).count("use_of_volumes")
    ask_for_room(harness, one)
    await harness.until(lambda: parts_of(harness, one) == [(9, False)])
    assert harness.host.methods(machine.machine_id).count("use_of_volumes") == asked
    assert (await harness.ask("POST", f"{path}/resume")).status == 200
    ask_for_room(harness, one)
    await harness.until(lambda: parts_of(harness, one) == [(9, True)])


@with_harness
async def test_what_there_is_too_much_is_owed_once_and_not_by_each(harness: Harness) -> None:
    volume = await made_with_quota(harness, 2)
    several = [await harness.create(volumes={"/data": "data"}) for _ in range(3)]
    now = clock(time.monotonic())

    def told_bytes() -> list[int]:
        told = [harness.machine_of(each["sandbox_id"]).rooms for each in several]
        return [0 if rooms is None else rooms["/data"].size_bytes for rooms in told]

    with patch("atoll.supervisor.monitors.volumes.time", now):
        await harness.until(lambda: min(told_bytes()) > 0)
        now.s += 60
        (harness.system.paths.volume_data(volume) / "a").write_bytes(bytes(5 * MIB))
        ask_for_room(harness, several[0])
        await harness.until(lambda: told_bytes() == [-3 * MIB - 4096, 0, 0])
        # However often it is measured while files may be missed.
        uses(harness, several[0], VolumeUse(moved=True, size_bytes=-3 * MIB))
        machine_id = harness.machine_of(several[1]["sandbox_id"]).machine_id
        before = harness.host.methods(machine_id).count("limit_volumes")

        def told_again(times: int) -> bool:
            return harness.host.methods(machine_id).count("limit_volumes") >= before + times

        for number in range(1, 4):
            ask_for_room(harness, several[0])
            await harness.until(partial(told_again, number))
        assert told_bytes() == [-3 * MIB - 4096, 0, 0]


@with_harness
async def test_while_there_is_plenty_those_that_rest_get_more(harness: Harness) -> None:
    await made_with_quota(harness, 800)
    several = [await harness.create(volumes={"/data": "data"}) for _ in range(3)]
    now = clock(time.monotonic())
    with patch("atoll.supervisor.monitors.volumes.time", now):
        await harness.until(lambda: parts_of(harness, *several) == [(266, True)] * 3)
        now.s += 60
        ask_for_room(harness, several[0])
        await harness.until(lambda: parts_of(harness, *several) == [(768, True), (16, True), (16, True)])


@with_harness
async def test_a_guest_that_does_not_say_what_it_has_moved_leaves_the_others_what_they_had(
    harness: Harness,
) -> None:
    volume = await made_with_quota(harness, 12)
    one = await harness.create(volumes={"/data": "data"})
    other = await harness.create(volumes={"/data": "data"})
    kept = harness.system.paths.volume_data(volume) / "a"
    with patch("atoll.supervisor.monitors.volumes._ACTIVE_S", 3600.0):
        await harness.until(lambda: parts_of(harness, one, other) == [(6, True)] * 2)
        kept.write_bytes(bytes(8 * MIB))
        ask_for_room(harness, one)
        await harness.until(lambda: parts_of(harness, one, other) == [(1, True)] * 2)
        kept.unlink()
        with patch("atoll.supervisor.monitors.volumes._AGAIN_S", 0.3):
            harness.host.fail_next("use_of_volumes")
            ask_for_room(harness, one)
            await harness.until(lambda: (1, False) in parts_of(harness, one, other))
        # It says it then, and there is all the room again.
        await harness.until(lambda: parts_of(harness, one, other) == [(6, True)] * 2)


@with_harness
async def test_a_guest_that_comes_while_a_volume_is_measured_says_what_it_has_moved(harness: Harness) -> None:
    await made_with_quota(harness, 12)
    one = await harness.create(volumes={"/data": "data"})
    await harness.until(lambda: parts_of(harness, one) == [(12, True)])
    marking = harness.host.hold("mark_volumes")
    ask_for_room(harness, one)
    machine_id = harness.machine_of(one["sandbox_id"]).machine_id
    await harness.until(lambda: harness.host.methods(machine_id).count("mark_volumes") == 2)
    other = await harness.create(volumes={"/data": "data"})
    marking.set()
    await harness.until(lambda: parts_of(harness, one, other) == [(6, True)] * 2)
    methods = harness.host.methods(harness.machine_of(other["sandbox_id"]).machine_id)
    assert "use_of_volumes" in methods[: methods.index("limit_volumes")]
    assert "mark_volumes" not in methods[: methods.index("limit_volumes")]


@with_harness
async def test_a_new_guest_is_told_nothing_while_files_may_have_been_missed_but_not_for_long(
    harness: Harness,
) -> None:
    await made_with_quota(harness, 12)
    one = await harness.create(volumes={"/data": "data"})
    now = clock(1000.0)
    with patch("atoll.supervisor.monitors.volumes.time", now):
        await harness.until(lambda: parts_of(harness, one) == [(12, True)])
        uses(harness, one, VolumeUse(moved=True, size_bytes=8 * MIB))
        await harness.until(lambda: parts_of(harness, one) == [(8, False)])
        other = await harness.create(volumes={"/data": "data"})
        machine_id = harness.machine_of(other["sandbox_id"]).machine_id
        await harness.until(lambda: harness.host.methods(machine_id).count("use_of_volumes") > 3)
        assert parts_of(harness, one, other) == [(8, False), None]
        now.s += 11
        await harness.until(lambda: parts_of(harness, one, other) == [(4, False)] * 2)


@with_harness
async def test_a_new_quota_is_measured_twice_since_nothing_was_counted_before(harness: Harness) -> None:
    await made(harness)
    one = await harness.create(volumes={"/data": "data"})
    await harness.until(lambda: rooms_of(harness, one) == {"/data": 1 << 40})
    machine_id = harness.machine_of(one["sandbox_id"]).machine_id
    # What moves meanwhile may have been missed, and nothing has bounded it.
    machine = harness.machine_of(one["sandbox_id"])
    machine.volume_uses = MappingProxyType({"/data": VolumeUse(moved=True, size_bytes=1 << 60)})
    await harness.ask("PUT", "/v1/volumes/data/quota", {"quota_mib": 7})
    await harness.until(lambda: parts_of(harness, one) == [(0, False)])
    machine.volume_uses = MappingProxyType({})
    await harness.until(lambda: parts_of(harness, one) == [(7, True)])
    assert harness.host.methods(machine_id).count("limit_volumes") >= 3


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
    harness.host.fail_next("mark_volumes")
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
