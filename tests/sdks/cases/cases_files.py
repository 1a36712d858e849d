"""Files, directories and watches through the server."""

from __future__ import annotations

import io
from typing import Any

import e2b
import httpx
import pytest

from conftest import Face

pytestmark = pytest.mark.anyio


async def test_what_is_written_is_read_as_text_bytes_and_stream(face: Face, sandbox: Any) -> None:
    info = await face.do(sandbox.files.write("/tmp/deep/down/ä b.txt", "größe"))
    assert info.path == "/tmp/deep/down/ä b.txt"
    assert await face.do(sandbox.files.read(info.path)) == "größe"
    assert await face.do(sandbox.files.read(info.path, format="bytes")) == "größe".encode()
    stream = await face.do(sandbox.files.read(info.path, format="stream"))
    got = b"".join([piece async for piece in stream]) if face.is_async else b"".join(stream)
    assert got == "größe".encode()
    assert await face.do(sandbox.files.read(info.path, gzip=True)) == "größe"


async def test_bytes_files_and_compressed_bodies_arrive(face: Face, sandbox: Any) -> None:
    data = bytes(range(256)) * 5000
    await face.do(sandbox.files.write("/tmp/raw", io.BytesIO(data)))
    assert await face.do(sandbox.files.read("/tmp/raw", format="bytes")) == data
    await face.do(sandbox.files.write("/tmp/zipped", data, gzip=True))
    assert await face.do(sandbox.files.read("/tmp/zipped", format="bytes")) == data
    await face.do(sandbox.files.write("/tmp/octets", data, use_octet_stream=True))
    assert await face.do(sandbox.files.read("/tmp/octets", format="bytes")) == data


async def test_several_files_are_written_at_once_with_metadata(face: Face, sandbox: Any) -> None:
    entries = [{"path": f"/tmp/many/{number}", "data": str(number)} for number in range(5)]
    written = await face.do(sandbox.files.write_files(entries))
    assert [one.path for one in written] == [one["path"] for one in entries]
    marked = await face.do(sandbox.files.write("/tmp/marked", "x", metadata={"origin": "test"}))
    assert marked.metadata == {"origin": "test"}
    assert (await face.do(sandbox.files.get_info("/tmp/marked"))).metadata == {"origin": "test"}


async def test_directories_are_made_listed_renamed_and_removed(face: Face, sandbox: Any) -> None:
    files = sandbox.files
    assert await face.do(files.make_dir("/tmp/tree/a/b"))
    assert not await face.do(files.make_dir("/tmp/tree/a/b"))
    await face.do(files.write("/tmp/tree/a/one", "1"))
    names = [one.path for one in await face.do(files.list("/tmp/tree", depth=3))]
    assert names == ["/tmp/tree/a", "/tmp/tree/a/b", "/tmp/tree/a/one"]
    info = await face.do(files.get_info("/tmp/tree/a/one"))
    assert (info.type, info.size, info.owner, info.permissions) == (
        e2b.FileType.FILE,
        1,
        "user",
        "-rw-r--r--",
    )
    moved = await face.do(files.rename("/tmp/tree/a/one", "/tmp/tree/two"))
    assert moved.path == "/tmp/tree/two"
    assert not await face.do(files.exists("/tmp/tree/a/one"))
    assert await face.do(files.exists("/tmp/tree/two"))
    await face.do(files.remove("/tmp/tree"))
    assert not await face.do(files.exists("/tmp/tree"))


async def test_missing_files_and_wrong_kinds_have_their_errors(face: Face, sandbox: Any) -> None:
    await face.raises(e2b.NotFoundException, lambda: sandbox.files.read("/tmp/nothing"))
    await face.raises(e2b.NotFoundException, lambda: sandbox.files.get_info("/tmp/nothing"))
    await face.raises(e2b.NotFoundException, lambda: sandbox.files.list("/tmp/nothing"))
    await face.raises(e2b.InvalidArgumentException, lambda: sandbox.files.read("/tmp"))
    await face.raises(e2b.InvalidArgumentException, lambda: sandbox.files.list("/etc/passwd"))


async def test_a_watch_tells_of_a_new_file(face: Face, sandbox: Any) -> None:
    await face.do(sandbox.files.make_dir("/tmp/watched"))
    told: list[Any] = []
    if face.is_async:
        watch = await sandbox.files.watch_dir("/tmp/watched", on_event=told.append)
    else:
        watch = sandbox.files.watch_dir("/tmp/watched")

    def news() -> list[Any]:
        if not face.is_async:
            told.extend(watch.get_new_events())
        return [one for one in told if one.name == "new.txt" and one.type == e2b.FilesystemEventType.WRITE]

    await face.do(sandbox.files.write("/tmp/watched/new.txt", "x"))
    assert await face.until(news)
    await face.do(watch.stop())


async def test_signed_urls_read_and_write_a_file(face: Face, sandbox: Any) -> None:
    up = sandbox.upload_url("/tmp/signed.txt", use_signature_expiration=1000)
    down = sandbox.download_url("/tmp/signed.txt", use_signature_expiration=1000)
    async with httpx.AsyncClient() as client:
        sent = await client.post(up, files={"file": ("signed.txt", b"by url")})
        assert sent.status_code == 200, sent.text
        assert (await client.get(down)).text == "by url"
        assert (await client.get(down.replace("signature=v1_", "signature=v1_x"))).status_code == 401


async def test_git_works_through_the_sdk(face: Face, sandbox: Any) -> None:
    git, do = sandbox.git, face.do
    await do(git.init("/tmp/origin.git", bare=True, initial_branch="main"))
    await do(git.configure_user("Ada", "ada@example.com"))
    await do(git.clone("/tmp/origin.git", path="/tmp/work"))
    await do(git.set_config("core.abbrev", "12", scope="local", path="/tmp/work"))
    assert await do(git.get_config("core.abbrev", scope="local", path="/tmp/work")) == "12"
    await do(sandbox.files.write("/tmp/work/a.txt", "one"))
    assert [one.name for one in (await do(git.status("/tmp/work"))).file_status] == ["a.txt"]
    await do(git.add("/tmp/work"))
    await do(git.commit("/tmp/work", "first"))
    await do(git.push("/tmp/work", remote="origin", branch="main"))
    await do(git.create_branch("/tmp/work", "side"))
    await do(git.checkout_branch("/tmp/work", "main"))
    assert "side" in (await do(git.branches("/tmp/work"))).branches
    await do(git.delete_branch("/tmp/work", "side", force=True))
    await do(git.pull("/tmp/work", remote="origin", branch="main"))
    await do(sandbox.files.write("/tmp/work/a.txt", "two"))
    await do(git.restore("/tmp/work", ["a.txt"]))
    assert await do(sandbox.files.read("/tmp/work/a.txt")) == "one"
    await do(sandbox.files.write("/tmp/work/a.txt", "three"))
    await do(git.reset("/tmp/work", mode="hard"))
    assert await do(sandbox.files.read("/tmp/work/a.txt")) == "one"
    await do(git.remote_add("/tmp/work", "other", "/tmp/origin.git"))
    assert await do(git.remote_get("/tmp/work", "other")) == "/tmp/origin.git"
    await do(git.dangerously_authenticate("ada", "secret", host="example.com"))
    kept = await do(sandbox.commands.run("cat ~/.git-credentials"))
    assert "ada:secret@example.com" in kept.stdout
