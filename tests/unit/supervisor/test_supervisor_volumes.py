"""Volumes, with machines that only know what they were started with."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from typing import Any
from unittest.mock import patch

import pytest

from atoll.errors import InvalidSpecError
from atoll.supervisor.state.rows import VolumeRow
from atoll.supervisor.storage.mount_points import check_mountpoints
from atoll.supervisor.storage.volume_lists import VolumeLists
from tests.unit.supervisor.harness import PATIENCE_S, Harness, with_harness


async def made(harness: Harness, name: str = "data", team: str | None = None) -> str:
    answer = await harness.ask("POST", "/v1/volumes", {"name": name, "team": team})
    assert answer.status == 200, answer.body
    volume_id: str = answer.json["volume_id"]
    return volume_id


def mounts_of(harness: Harness, sandbox: dict[str, Any]) -> dict[str, str]:
    binds = harness.machine_of(sandbox["sandbox_id"]).plan.binds
    return {bind.target: bind.source for bind in binds if bind.shared and not bind.read_only}


def read_only_mounts_of(harness: Harness, sandbox: dict[str, Any]) -> dict[str, str]:
    binds = harness.machine_of(sandbox["sandbox_id"]).plan.binds
    return {bind.target: bind.source for bind in binds if bind.shared and bind.read_only}


def shown(volume: str, *, read_only: bool = False) -> dict[str, object]:
    return {"volume": volume, "read_only": read_only}


@pytest.mark.parametrize("path", ["/data", "/mnt/a b", "/tmp/x", "/home/user/work", "/run/user", "/dévelop"])
def test_a_volume_may_appear_there(path: str) -> None:
    check_mountpoints({path: "data"})


@pytest.mark.parametrize(
    "path",
    ["/", "", "data", "/a/", "/a//b", "//a", "/a/../b", "/a/.", "/proc", "/proc/x", "/sys/fs", "/dev/shm"]
    + ["/.atoll", "/.atoll/x", "/run", "/run/atoll", "/a\nb", "/a\0b", "/" + "a" * 2000],
)
def test_a_volume_may_not_appear_there(path: str) -> None:
    with pytest.raises(InvalidSpecError):
        check_mountpoints({path: "data"})


def test_volumes_do_not_lie_in_each_other_and_are_not_many() -> None:
    check_mountpoints({"/a": "one", "/ab": "two"})
    with pytest.raises(InvalidSpecError):
        check_mountpoints({"/a": "one", "/a/b": "two"})
    with pytest.raises(InvalidSpecError):
        check_mountpoints({f"/{number}": "data" for number in range(17)})


@with_harness
async def test_a_name_is_one_teams_and_an_id_is_everybodys(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "red"})
    first, second = await made(harness), await made(harness, team="red")
    assert (await harness.ask("GET", "/v1/volumes/data")).json["volume_id"] == first
    assert (await harness.ask("GET", "/v1/volumes/data?team=red")).json["volume_id"] == second
    assert (await harness.ask("GET", f"/v1/volumes/{second}")).json["name"] == "data"
    assert (await harness.ask("GET", f"/v1/volumes/{first}?team=red")).status == 404
    taken = await harness.ask("POST", "/v1/volumes", {"name": "data", "team": "red"})
    assert (taken.status, taken.json["code"]) == (409, "name_taken")
    assert [one["volume_id"] for one in (await harness.ask("GET", "/v1/volumes?team=red")).json] == [second]
    assert len((await harness.ask("GET", "/v1/volumes")).json) == 2
    for name in ("", "a/b", "..", "a b", "x" * 129):
        assert (await harness.ask("POST", "/v1/volumes", {"name": name})).status == 400


@with_harness
async def test_a_team_has_so_many_volumes_and_takes_none_of_the_others(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "red"})
    with patch("atoll.supervisor.storage.volumes._VOLUMES_MOST", 1):
        await made(harness)
        refused = await harness.ask("POST", "/v1/volumes", {"name": "more"})
        assert (refused.status, refused.json["code"]) == (400, "invalid_spec")
        await made(harness, team="red")


@with_harness
async def test_what_a_sandbox_mounts_follows_it_through_all_its_states(harness: Harness) -> None:
    volume = await made(harness)
    data = str(harness.home.volumes / volume / "data")
    sandbox = await harness.create(volumes={"/data": "data"})
    assert sandbox["volumes"] == {"/data": shown(volume)}
    assert mounts_of(harness, sandbox) == {"/data": data}
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    snapshot = (await harness.ask("POST", f"{path}/snapshots", {"name": "kept"})).json
    (fork,) = (await harness.ask("POST", f"{path}/fork", {})).json
    restored = await harness.create(from_snapshot="kept")
    for state in ("suspend", "resume"):
        assert (await harness.ask("POST", f"{path}/{state}")).status == 200
    for one in (sandbox, fork, restored):
        assert mounts_of(harness, one) == {"/data": data}
    assert (await harness.ask("POST", f"{path}/rollback", {"snapshot": "kept"})).json["volumes"] == {
        "/data": shown(volume)
    }
    assert snapshot["sandbox_id"] == sandbox["sandbox_id"]


@with_harness
async def test_a_mount_stays_read_only_through_all_states(harness: Harness) -> None:
    volume = await made(harness)
    wanted = {"/data": {"volume": "data", "read_only": True}, "/out": "data"}
    data = str(harness.home.volumes / volume / "data")
    sandbox = await harness.create(volumes=wanted)
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    await harness.ask("POST", f"{path}/snapshots", {"name": "kept"})
    (fork,) = (await harness.ask("POST", f"{path}/fork", {})).json
    restored = await harness.create(from_snapshot="kept")
    for state in ("suspend", "resume"):
        assert (await harness.ask("POST", f"{path}/{state}")).status == 200
    rolled_back = (await harness.ask("POST", f"{path}/rollback", {"snapshot": "kept"})).json
    for one in (sandbox, fork, restored, rolled_back):
        assert one["volumes"] == {"/data": shown(volume, read_only=True), "/out": shown(volume)}
        assert read_only_mounts_of(harness, one) == {"/data": data}
        assert mounts_of(harness, one) == {"/out": data}


@with_harness
async def test_what_a_snapshot_mounts_read_only_stays_so(harness: Harness) -> None:
    await made(harness)
    other = await made(harness, "other")
    for name, was in (("reads", True), ("writes", False)):
        sandbox = await harness.create(volumes={"/data": {"volume": "data", "read_only": was}})
        await harness.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots", {"name": name})
        wanted = {"/data": {"volume": "other", "read_only": not was}}
        refused = await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": name, "volumes": wanted})
        assert (refused.status, refused.json["code"]) == (400, "invalid_spec")
        wanted = {"/data": {"volume": "other", "read_only": was}}
        started = await harness.create(from_snapshot=name, volumes=wanted)
        assert started["volumes"] == {"/data": shown(other, read_only=was)}


@with_harness
async def test_a_snapshot_may_start_with_another_volume_and_with_no_other_path(harness: Harness) -> None:
    await made(harness)
    other = await made(harness, "other")
    sandbox = await harness.create(volumes={"/data": "data"})
    await harness.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots", {"name": "kept"})
    started = await harness.create(from_snapshot="kept", volumes={"/data": "other"})
    assert started["volumes"] == {"/data": shown(other)}
    refused = await harness.ask(
        "POST", "/v1/sandboxes", {"from_snapshot": "kept", "volumes": {"/else": "other"}}
    )
    assert refused.status == 400
    await harness.ask("POST", "/v1/teams", {"name": "red"})
    # Its memory would bring one team's files to another.
    foreign = await harness.ask("POST", "/v1/sandboxes", {"from_snapshot": "kept", "team": "red"})
    assert (foreign.status, foreign.json["code"]) == (404, "volume_not_found")


@with_harness
async def test_a_volume_is_deleted_only_when_nobody_mounts_it(harness: Harness) -> None:
    volume = await made(harness)
    sandbox = await harness.create(volumes={"/data": volume})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    await harness.ask("POST", f"{path}/suspend")
    refused = await harness.ask("DELETE", "/v1/volumes/data")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert (await harness.ask("DELETE", path)).status == 204
    assert (await harness.ask("DELETE", "/v1/volumes/data")).status == 204
    assert (await harness.ask("GET", f"/v1/volumes/{volume}")).status == 404
    await harness.until(lambda: not list(harness.home.volumes.iterdir()))
    unknown = await harness.ask("POST", "/v1/sandboxes", {"volumes": {"/data": "data"}})
    assert (unknown.status, unknown.json["code"]) == (404, "volume_not_found")
    await made(harness)


@with_harness
async def test_volumes_outlive_their_supervisor_and_their_database(harness: Harness) -> None:
    volume = await made(harness)
    (harness.home.volumes / volume / "data" / "file").write_text("dear")
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", "/v1/volumes/data")).json["volume_id"] == volume
    await harness.until((harness.home.volumes / volume / "row.json").exists)
    await harness.system.database.delete(
        VolumeRow(volume_id=volume, name="data", team=None, created_at=0.0), durable=True
    )
    await harness.crash()
    await harness.start()
    assert (await harness.ask("GET", "/v1/volumes/data")).json["volume_id"] == volume
    assert (harness.home.volumes / volume / "data" / "file").read_text() == "dear"


@with_harness
async def test_what_a_crash_left_of_a_volume_goes_and_what_somebody_keeps_there_stays(
    harness: Harness,
) -> None:
    volume = await made(harness)
    volumes = harness.home.volumes
    await harness.until((volumes / volume / "row.json").exists)
    await harness.crash()
    (volumes / "halfmade" / "data").mkdir(parents=True)
    (volumes / volume / "aside").mkdir()
    (volumes / volume / "aside" / "upload").write_text("cut short")
    shutil.copytree(volumes / volume, volumes / ".erased-gone")
    lost = volumes / "lostlostlostlostlost"
    shutil.copytree(volumes / volume, lost)
    await harness.start()
    assert sorted(entry.name for entry in volumes.iterdir()) == sorted([volume, lost.name])
    assert not (volumes / volume / "aside").exists()
    assert (await harness.ask("GET", "/v1/leftovers")).json == []


@with_harness
async def test_a_volume_whose_directory_is_gone_is_no_volume(harness: Harness) -> None:
    volume = await made(harness)
    await harness.crash()
    shutil.rmtree(harness.home.volumes / volume)
    await harness.start()
    assert (await harness.ask("GET", "/v1/volumes")).json == []


@with_harness
async def test_a_sandbox_is_not_woken_without_its_volume(harness: Harness) -> None:
    volume = await made(harness)
    sandbox = await harness.create(volumes={"/data": volume})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    await harness.ask("POST", f"{path}/suspend")
    shutil.move(harness.home.volumes / volume, harness.home.path / "elsewhere")
    refused = await harness.ask("POST", f"{path}/resume")
    assert (refused.json["code"], (await harness.ask("GET", path)).json["state"]) == (
        "host_unfit",
        "suspended",
    )
    shutil.move(harness.home.path / "elsewhere", harness.home.volumes / volume)
    assert (await harness.ask("POST", f"{path}/resume")).status == 200


@with_harness
async def test_files_are_reached_without_a_sandbox_and_errors_say_what_is_wrong(harness: Harness) -> None:
    base = f"/v1/volumes/{await made(harness)}"
    mine = f"uid={os.getuid()}&gid={os.getgid()}"
    assert (await harness.ask("POST", f"{base}/dir?path=a/b&parents=1&{mine}")).json["path"] == "/a/b"
    written = await harness.ask("PUT", f"{base}/file?path=/a/b/c&replace=1&mode=384&{mine}", {"json": 1})
    assert (written.json["size_bytes"], written.json["mode"]) == (len(json.dumps({"json": 1})), 0o600)
    assert (await harness.ask("GET", f"{base}/file?path=a//b/../b/c")).json == {"json": 1}
    assert [one["path"] for one in (await harness.ask("GET", f"{base}/dir?path=/a&depth=2")).json] == [
        "/a/b",
        "/a/b/c",
    ]
    for method, path, code in (
        ("GET", "file?path=/none", "file_missing"),
        ("GET", "file?path=/a", "is_a_directory"),
        ("GET", "dir?path=/a/b/c", "not_a_directory"),
        ("GET", "dir?path=/&depth=0", "invalid_spec"),
        ("GET", "dir?path=/&depth=-1", "invalid_spec"),
        ("GET", "entry?path=%00", "invalid_spec"),
        ("PUT", "file?path=/a/b/c&replace=0", "file_taken"),
        ("PUT", "file?path=/x/y&parents=0&replace=1", "file_missing"),
        ("PUT", "file?path=/a&replace=1", "is_a_directory"),
        ("PUT", "file?path=/x&replace=1&mode=99999", "invalid_spec"),
        ("DELETE", "entry?path=/", "invalid_spec"),
        ("DELETE", "entry?path=/../..", "invalid_spec"),
    ):
        assert (await harness.ask(method, f"{base}/{path}")).json["code"] == code, path
    assert (await harness.ask("DELETE", f"{base}/entry?path=/a")).status == 204
    assert (await harness.ask("GET", f"{base}/dir?path=/")).json == []


@with_harness
async def test_a_team_that_has_used_up_its_disk_uploads_no_more(harness: Harness) -> None:
    await harness.ask("POST", "/v1/teams", {"name": "red", "quotas": {"disk_mib": 1}})
    volume = await made(harness, team="red")
    (harness.home.volumes / volume / "data" / "big").write_bytes(b"x" * (2 << 20))
    upload = f"/v1/volumes/{volume}/file?path=/new&replace=1&uid={os.getuid()}&gid={os.getgid()}"
    async with asyncio.timeout(PATIENCE_S):
        # Who asks does not wait for long until it is measured.
        while (answer := await harness.ask("PUT", upload, "x")).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (answer.status, answer.json["code"]) == (429, "quota")
    assert list((harness.home.volumes / volume / "aside").iterdir()) == []


@with_harness
async def test_a_volume_that_is_listed_often_waits_for_itself_and_lets_others_go_first(_: object) -> None:
    lists, running = VolumeLists(), list[str]()
    go_on = asyncio.Event()

    async def listed(volume: str) -> None:
        async with lists.turn(volume):
            running.append(volume)
            await go_on.wait()

    async with asyncio.TaskGroup() as group:
        for volume in ("one", "one", "one", "two", "three"):
            group.create_task(listed(volume))
        for _ in range(10):
            await asyncio.sleep(0)
        assert running == ["one", "two"]
        go_on.set()
    assert sorted(running) == ["one", "one", "one", "three", "two"]


@with_harness
async def test_a_volume_with_long_paths_deep_down_is_too_much_to_list(harness: Harness) -> None:
    volume = await made(harness)
    top = harness.home.volumes / volume / "data"
    fd = os.open(top, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    for number in range(800):
        os.close(os.open(f"{number:0200}", os.O_CREAT, dir_fd=fd))
    os.close(fd)
    refused = await harness.ask("GET", f"/v1/volumes/{volume}/dir?path=/&depth=64")
    assert refused.status == 400
    assert "characters" in refused.json["message"]
    (shown,) = (await harness.ask("GET", f"/v1/volumes/{volume}/dir?path=/&depth=1")).json
    assert shown["kind"] == "directory"
