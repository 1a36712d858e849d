"""Volumes as E2B's own SDK uses them."""

from __future__ import annotations

import io
from collections.abc import Iterator

import e2b
import httpx
import pytest
from e2b.exceptions import AuthenticationException, NotFoundException, SandboxException
from e2b.volume.types import VolumeFileType
from tests.e2e.server import Server

from atoll import Keys, Teams


@pytest.fixture(autouse=True)
def variables(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """What `atoll serve` tells its users to set."""
    for name, value in server.variables.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def volume(variables: None) -> Iterator[e2b.Volume]:
    made = e2b.Volume.create("data_1")
    yield made
    e2b.Volume.destroy(made.volume_id)


def test_a_volume_is_made_found_and_destroyed(server: Server) -> None:
    made = e2b.Volume.create("Some-Name_1")
    assert made.name == "Some-Name_1"
    assert [(one.volume_id, one.name) for one in e2b.Volume.list()] == [(made.volume_id, made.name)]
    again = e2b.Volume.connect(made.volume_id)
    assert (again.name, again.token) == (made.name, made.token)
    with pytest.raises(e2b.VolumeException):
        e2b.Volume.create("Some-Name_1")
    with pytest.raises(e2b.VolumeException):
        e2b.Volume.create("no name")
    assert e2b.Volume.destroy(made.volume_id) is True
    assert e2b.Volume.destroy(made.volume_id) is False
    with pytest.raises(NotFoundException):
        e2b.Volume.connect(made.volume_id)
    with pytest.raises(NotFoundException):
        made.list("/")


def test_every_method_of_a_volume_does_what_it_says(volume: e2b.Volume) -> None:
    written = volume.write_file("/notes/first.txt", "hello", mode=0o640, uid=1000, gid=1000)
    assert (written.path, written.size, written.mode) == ("/notes/first.txt", 5, 0o640)
    assert (written.type, written.uid, written.gid) == (VolumeFileType.FILE, 1000, 1000)
    assert volume.read_file("/notes/first.txt") == "hello"
    assert bytes(volume.read_file("notes/first.txt", format="bytes")) == b"hello"
    big = bytes(range(256)) * 4096 * 8
    assert volume.write_file("/big", io.BytesIO(big)).size == len(big)
    assert b"".join(volume.read_file("/big", format="stream")) == big
    with pytest.raises(e2b.VolumeException):
        volume.write_file("/big", "x", force=False)
    assert volume.write_file("/big", "less", force=True).size == 4
    made = volume.make_dir("/deep/er", mode=0o700, force=True)
    assert (made.type, made.mode, made.name) == (VolumeFileType.DIRECTORY, 0o700, "er")
    with pytest.raises(NotFoundException):
        volume.make_dir("/not/there")
    with pytest.raises(e2b.VolumeException):
        volume.make_dir("/deep")
    assert [entry.path for entry in volume.list("/")] == ["/big", "/deep", "/notes"]
    assert [entry.path for entry in volume.list("/", depth=2)] == [
        "/big",
        "/deep",
        "/deep/er",
        "/notes",
        "/notes/first.txt",
    ]
    changed = volume.update_metadata("/big", uid=0, gid=0, mode=0o600)
    assert (changed.uid, changed.mode) == (0, 0o600)
    assert volume.get_info("/big").mtime.tzinfo is not None
    assert (volume.exists("/big"), volume.exists("/none")) == (True, False)
    volume.remove("/deep")
    with pytest.raises(NotFoundException):
        volume.remove("/deep")
    for missing in (volume.read_file, volume.get_info, volume.list):
        with pytest.raises(NotFoundException):
            missing("/none")
    with pytest.raises(e2b.VolumeException):
        volume.list("/big")


def test_a_mounted_volume_is_shared_by_sandboxes_and_outlives_them(volume: e2b.Volume) -> None:
    volume.write_file("/in", "from outside")
    with e2b.Sandbox.create(volume_mounts={"/mnt/data": volume}) as one:
        assert one.files.read("/mnt/data/in") == "from outside"
        with e2b.Sandbox.create(volume_mounts={"/data": volume.name}) as other:
            one.commands.run("echo hi > /mnt/data/out && ln -s /etc/passwd /mnt/data/link")
            assert other.files.read("/data/out") == "hi\n"
            mounts = [(mount["name"], mount["path"]) for mount in other.get_info().volume_mounts]
            assert mounts == [(volume.name, "/data")]
            with pytest.raises(e2b.VolumeException):
                e2b.Volume.destroy(volume.volume_id)
        one.pause()
        volume.write_file("/in", "while it slept")
        one.connect()
        assert one.files.read("/mnt/data/in") == "while it slept"
    assert volume.read_file("/out") == "hi\n"
    assert volume.get_info("/link").target == "/etc/passwd"
    with pytest.raises(NotFoundException):
        volume.read_file("/link")
    with pytest.raises(SandboxException):
        e2b.Sandbox.create(volume_mounts={"/data": "nobodys"})


def test_a_team_neither_sees_nor_mounts_the_volumes_of_another(server: Server, volume: e2b.Volume) -> None:
    Teams.create("others")
    key = Keys.create("others", "test").key
    assert e2b.Volume.list(api_key=key) == []
    with pytest.raises(NotFoundException):
        e2b.Volume.get_info(volume.volume_id, api_key=key)
    assert e2b.Volume.destroy(volume.volume_id, api_key=key) is False
    for ref in (volume.name, volume.volume_id):
        with pytest.raises(SandboxException):
            e2b.Sandbox.create(volume_mounts={"/data": ref}, api_key=key)
    own = e2b.Volume.create(volume.name, api_key=key)
    for token in (own.token, key, "", f"{volume.token}0"):
        stranger = e2b.Volume(volume.volume_id, volume.name, token)
        with pytest.raises(AuthenticationException):
            stranger.list("/")
    e2b.Volume.destroy(own.volume_id, api_key=key)


@pytest.mark.parametrize(
    "path", ["../../etc/passwd", "/../../../etc/passwd", "/%2e%2e/x", "/a\0b", "/" + "a/" * 3000]
)
def test_no_path_of_a_request_leads_out_of_the_volume(server: Server, volume: e2b.Volume, path: str) -> None:
    headers = {"Authorization": f"Bearer {volume.token}"}
    with httpx.Client(base_url=server.url, headers=headers) as client:
        for method in ("GET", "DELETE"):
            answer = client.request(method, f"/volumecontent/{volume.volume_id}/path", params={"path": path})
            assert answer.status_code in (400, 404), answer.text
            assert isinstance(answer.json()["code"], str)
        for ref in ("..", "x" * 20, f"{volume.volume_id}%2f..", "%00"):
            assert client.get(f"/volumecontent/{ref}/dir", params={"path": "/"}).status_code in (
                400,
                401,
                404,
            )
