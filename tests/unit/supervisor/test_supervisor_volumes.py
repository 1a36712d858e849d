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
from tests.unit.supervisor.world import PATIENCE_S, World, in_world


async def made(world: World, name: str = "data", team: str | None = None) -> str:
    answer = await world.ask("POST", "/v1/volumes", {"name": name, "team": team})
    assert answer.status == 200, answer.body
    volume_id: str = answer.json["volume_id"]
    return volume_id


def mounts_of(world: World, sandbox: dict[str, Any]) -> dict[str, str]:
    binds = world.machine_of(sandbox["sandbox_id"]).plan.binds
    return {bind.target: bind.source for bind in binds if bind.shared}


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


@in_world
async def test_a_name_is_one_teams_and_an_id_is_everybodys(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "red"})
    first, second = await made(world), await made(world, team="red")
    assert (await world.ask("GET", "/v1/volumes/data")).json["volume_id"] == first
    assert (await world.ask("GET", "/v1/volumes/data?team=red")).json["volume_id"] == second
    assert (await world.ask("GET", f"/v1/volumes/{second}")).json["name"] == "data"
    assert (await world.ask("GET", f"/v1/volumes/{first}?team=red")).status == 404
    taken = await world.ask("POST", "/v1/volumes", {"name": "data", "team": "red"})
    assert (taken.status, taken.json["code"]) == (409, "name_taken")
    assert [one["volume_id"] for one in (await world.ask("GET", "/v1/volumes?team=red")).json] == [second]
    assert len((await world.ask("GET", "/v1/volumes")).json) == 2
    for name in ("", "a/b", "..", "a b", "x" * 129):
        assert (await world.ask("POST", "/v1/volumes", {"name": name})).status == 400


@in_world
async def test_a_team_has_so_many_volumes_and_takes_none_of_the_others(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "red"})
    with patch("atoll.supervisor.storage.volumes._VOLUMES_MOST", 1):
        await made(world)
        refused = await world.ask("POST", "/v1/volumes", {"name": "more"})
        assert (refused.status, refused.json["code"]) == (400, "invalid_spec")
        await made(world, team="red")


@in_world
async def test_what_a_sandbox_mounts_follows_it_through_all_its_states(world: World) -> None:
    volume = await made(world)
    data = str(world.home.volumes / volume / "data")
    sandbox = await world.create(volumes={"/data": "data"})
    assert sandbox["volumes"] == {"/data": volume}
    assert mounts_of(world, sandbox) == {"/data": data}
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    snapshot = (await world.ask("POST", f"{path}/snapshots", {"name": "kept"})).json
    (fork,) = (await world.ask("POST", f"{path}/fork", {})).json
    restored = await world.create(from_snapshot="kept")
    for state in ("suspend", "resume"):
        assert (await world.ask("POST", f"{path}/{state}")).status == 200
    for one in (sandbox, fork, restored):
        assert mounts_of(world, one) == {"/data": data}
    assert (await world.ask("POST", f"{path}/rollback", {"snapshot": "kept"})).json["volumes"] == {
        "/data": volume
    }
    assert snapshot["sandbox_id"] == sandbox["sandbox_id"]


@in_world
async def test_a_snapshot_may_start_with_another_volume_and_with_no_other_path(world: World) -> None:
    await made(world)
    other = await made(world, "other")
    sandbox = await world.create(volumes={"/data": "data"})
    await world.ask("POST", f"/v1/sandboxes/{sandbox['sandbox_id']}/snapshots", {"name": "kept"})
    started = await world.create(from_snapshot="kept", volumes={"/data": "other"})
    assert started["volumes"] == {"/data": other}
    refused = await world.ask(
        "POST", "/v1/sandboxes", {"from_snapshot": "kept", "volumes": {"/else": "other"}}
    )
    assert refused.status == 400
    await world.ask("POST", "/v1/teams", {"name": "red"})
    # Its memory would bring one team's files to another.
    foreign = await world.ask("POST", "/v1/sandboxes", {"from_snapshot": "kept", "team": "red"})
    assert (foreign.status, foreign.json["code"]) == (404, "volume_not_found")


@in_world
async def test_a_volume_is_deleted_only_when_nobody_mounts_it(world: World) -> None:
    volume = await made(world)
    sandbox = await world.create(volumes={"/data": volume})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    await world.ask("POST", f"{path}/suspend")
    refused = await world.ask("DELETE", "/v1/volumes/data")
    assert (refused.status, refused.json["code"]) == (409, "in_use")
    assert (await world.ask("DELETE", path)).status == 204
    assert (await world.ask("DELETE", "/v1/volumes/data")).status == 204
    assert (await world.ask("GET", f"/v1/volumes/{volume}")).status == 404
    await world.until(lambda: not list(world.home.volumes.iterdir()))
    unknown = await world.ask("POST", "/v1/sandboxes", {"volumes": {"/data": "data"}})
    assert (unknown.status, unknown.json["code"]) == (404, "volume_not_found")
    await made(world)


@in_world
async def test_volumes_outlive_their_supervisor_and_their_database(world: World) -> None:
    volume = await made(world)
    (world.home.volumes / volume / "data" / "file").write_text("dear")
    await world.crash()
    await world.start()
    assert (await world.ask("GET", "/v1/volumes/data")).json["volume_id"] == volume
    await world.until((world.home.volumes / volume / "row.json").exists)
    await world.system.database.delete(
        VolumeRow(volume_id=volume, name="data", team=None, created_at=0.0), durable=True
    )
    await world.crash()
    await world.start()
    assert (await world.ask("GET", "/v1/volumes/data")).json["volume_id"] == volume
    assert (world.home.volumes / volume / "data" / "file").read_text() == "dear"


@in_world
async def test_what_a_crash_left_of_a_volume_goes_and_what_somebody_keeps_there_stays(world: World) -> None:
    volume = await made(world)
    volumes = world.home.volumes
    await world.until((volumes / volume / "row.json").exists)
    await world.crash()
    (volumes / "halfmade" / "data").mkdir(parents=True)
    (volumes / volume / "aside").mkdir()
    (volumes / volume / "aside" / "upload").write_text("cut short")
    shutil.copytree(volumes / volume, volumes / ".erased-gone")
    lost = volumes / "lostlostlostlostlost"
    shutil.copytree(volumes / volume, lost)
    await world.start()
    assert sorted(entry.name for entry in volumes.iterdir()) == sorted([volume, lost.name])
    assert not (volumes / volume / "aside").exists()
    assert (await world.ask("GET", "/v1/leftovers")).json == []


@in_world
async def test_a_volume_whose_directory_is_gone_is_no_volume(world: World) -> None:
    volume = await made(world)
    await world.crash()
    shutil.rmtree(world.home.volumes / volume)
    await world.start()
    assert (await world.ask("GET", "/v1/volumes")).json == []


@in_world
async def test_a_sandbox_is_not_woken_without_its_volume(world: World) -> None:
    volume = await made(world)
    sandbox = await world.create(volumes={"/data": volume})
    path = f"/v1/sandboxes/{sandbox['sandbox_id']}"
    await world.ask("POST", f"{path}/suspend")
    shutil.move(world.home.volumes / volume, world.home.path / "elsewhere")
    refused = await world.ask("POST", f"{path}/resume")
    assert (refused.json["code"], (await world.ask("GET", path)).json["state"]) == ("host_unfit", "suspended")
    shutil.move(world.home.path / "elsewhere", world.home.volumes / volume)
    assert (await world.ask("POST", f"{path}/resume")).status == 200


@in_world
async def test_files_are_reached_without_a_sandbox_and_errors_say_what_is_wrong(world: World) -> None:
    base = f"/v1/volumes/{await made(world)}"
    mine = f"uid={os.getuid()}&gid={os.getgid()}"
    assert (await world.ask("POST", f"{base}/dir?path=a/b&parents=1&{mine}")).json["path"] == "/a/b"
    written = await world.ask("PUT", f"{base}/file?path=/a/b/c&replace=1&mode=384&{mine}", {"json": 1})
    assert (written.json["size_bytes"], written.json["mode"]) == (len(json.dumps({"json": 1})), 0o600)
    assert (await world.ask("GET", f"{base}/file?path=a//b/../b/c")).json == {"json": 1}
    assert [one["path"] for one in (await world.ask("GET", f"{base}/dir?path=/a&depth=2")).json] == [
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
        assert (await world.ask(method, f"{base}/{path}")).json["code"] == code, path
    assert (await world.ask("DELETE", f"{base}/entry?path=/a")).status == 204
    assert (await world.ask("GET", f"{base}/dir?path=/")).json == []


@in_world
async def test_a_team_that_has_used_up_its_disk_uploads_no_more(world: World) -> None:
    await world.ask("POST", "/v1/teams", {"name": "red", "quotas": {"disk_mib": 1}})
    volume = await made(world, team="red")
    (world.home.volumes / volume / "data" / "big").write_bytes(b"x" * (2 << 20))
    upload = f"/v1/volumes/{volume}/file?path=/new&replace=1&uid={os.getuid()}&gid={os.getgid()}"
    async with asyncio.timeout(PATIENCE_S):
        # Who asks does not wait for long until it is measured.
        while (answer := await world.ask("PUT", upload, "x")).status == 200:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (answer.status, answer.json["code"]) == (429, "quota")
    assert list((world.home.volumes / volume / "aside").iterdir()) == []


@in_world
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


@in_world
async def test_a_volume_with_long_paths_deep_down_is_too_much_to_list(world: World) -> None:
    volume = await made(world)
    top = world.home.volumes / volume / "data"
    fd = os.open(top, os.O_RDONLY)
    for _ in range(60):
        os.mkdir("d" * 200, dir_fd=fd)
        below = os.open("d" * 200, os.O_RDONLY, dir_fd=fd)
        os.close(fd)
        fd = below
    for number in range(800):
        os.close(os.open(f"{number:0200}", os.O_CREAT, dir_fd=fd))
    os.close(fd)
    refused = await world.ask("GET", f"/v1/volumes/{volume}/dir?path=/&depth=64")
    assert refused.status == 400
    assert "characters" in refused.json["message"]
    (shown,) = (await world.ask("GET", f"/v1/volumes/{volume}/dir?path=/&depth=1")).json
    assert shown["kind"] == "directory"
