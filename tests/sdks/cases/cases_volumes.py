"""Volumes and secrets through the server."""

from __future__ import annotations

import uuid
from typing import Any

import e2b
import pytest

from conftest import Face

pytestmark = pytest.mark.anyio


async def test_a_volume_is_shared_by_sandboxes_and_outlives_them(face: Face, anew: Any) -> None:
    volume = await face.do(face.Volume.create(f"shared-{uuid.uuid4().hex[:8]}"))
    first = await anew(volume_mounts={"/data": volume})
    second = await anew(volume_mounts={"/other": volume.name})
    await face.do(first.commands.run("echo from the first > /data/note"))
    assert (await face.do(second.commands.run("cat /other/note"))).stdout == "from the first\n"
    assert (await face.do(first.get_info())).volume_mounts == [{"name": volume.name, "path": "/data"}]
    await face.do(first.kill())
    await face.do(second.kill())
    assert await face.do(volume.read_file("/note")) == "from the first\n"
    assert await face.do(face.Volume.destroy(volume.volume_id))


async def test_a_volume_has_files_without_any_sandbox(face: Face) -> None:
    made = await face.do(face.Volume.create(f"files-{uuid.uuid4().hex[:8]}"))
    volume = await face.do(face.Volume.connect(made.volume_id))
    assert volume.name == made.name
    assert volume.token
    assert (await face.do(face.Volume.get_info(made.volume_id))).name == made.name
    assert made.volume_id in [one.volume_id for one in await face.do(face.Volume.list())]
    await face.do(volume.make_dir("/a/b", force=True))
    await face.do(volume.write_file("/a/b/text", "größe"))
    assert await face.do(volume.read_file("/a/b/text")) == "größe"
    assert await face.do(volume.read_file("/a/b/text", format="bytes")) == "größe".encode()
    stream = await face.do(volume.read_file("/a/b/text", format="stream"))
    assert (
        b"".join([piece async for piece in stream]) if face.is_async else b"".join(stream)
    ) == "größe".encode()
    entry = await face.do(volume.update_metadata("/a/b/text", mode=0o600))
    assert entry.mode & 0o777 == 0o600
    assert (await face.do(volume.get_info("/a/b/text"))).size == len("größe".encode())
    assert [one.name for one in await face.do(volume.list("/a"))] == ["b"]
    assert await face.do(volume.exists("/a/b/text"))
    await face.do(volume.remove("/a/b/text"))
    assert not await face.do(volume.exists("/a/b/text"))
    await face.raises(e2b.VolumePathNotFoundException, lambda: volume.read_file("/a/b/text"))
    assert await face.do(face.Volume.destroy(made.volume_id))
    assert not await face.do(face.Volume.destroy(made.volume_id))
    await face.raises(e2b.VolumeNotFoundException, lambda: face.Volume.connect(made.volume_id))
