"""The published E2B SDK works with files through the guest agent."""

import asyncio
import time
import uuid
from collections.abc import Callable, Iterator

import pytest
from e2b import (
    AsyncSandbox,
    FilesystemEvent,
    FilesystemEventType,
    FileType,
    InvalidArgumentException,
    NotFoundException,
    Sandbox,
)

BOUND_S = 60
# Files that are run beside this one may have the port for as long as their tests take.
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def sandbox(e2b_port: int, monkeypatch: pytest.MonkeyPatch) -> Sandbox:
    assert e2b_port == 49983, "the SDK's debug mode knows only this port"
    monkeypatch.setenv("E2B_DEBUG", "true")
    return Sandbox.create()


@pytest.fixture
def directory(sandbox: Sandbox) -> Iterator[str]:
    path = f"/home/user/e2b-{uuid.uuid4().hex}"
    assert sandbox.files.make_dir(path)
    yield path
    sandbox.files.remove(path)


def poll(done: Callable[[], bool]) -> None:
    limit = time.monotonic() + BOUND_S
    while not done():
        assert time.monotonic() < limit
        time.sleep(0.05)


def test_text_and_bytes_come_back_as_they_were_written(sandbox: Sandbox, directory: str) -> None:
    blob = bytes(range(256)) * 4096
    sandbox.files.write(f"{directory}/deep/er/text", "größe\n")
    sandbox.files.write(f"{directory}/blob", blob)
    assert sandbox.files.read(f"{directory}/deep/er/text") == "größe\n"
    assert bytes(sandbox.files.read(f"{directory}/blob", format="bytes")) == blob
    assert b"".join(sandbox.files.read(f"{directory}/blob", format="stream")) == blob


def test_a_file_can_be_uploaded_as_a_stream_and_compressed(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/plain", b"x" * 300_000, use_octet_stream=True)
    sandbox.files.write(f"{directory}/packed", b"y" * 300_000, gzip=True)
    assert sandbox.files.read(f"{directory}/plain") == "x" * 300_000
    assert sandbox.files.read(f"{directory}/packed", gzip=True) == "y" * 300_000


def test_several_files_are_written_in_one_call(sandbox: Sandbox, directory: str) -> None:
    written = sandbox.files.write_files(
        [{"path": f"{directory}/{name}", "data": name} for name in ("a", "b", "c")]
    )
    assert [info.path for info in written] == [f"{directory}/{name}" for name in ("a", "b", "c")]
    assert [sandbox.files.read(f"{directory}/{name}") for name in ("a", "b", "c")] == ["a", "b", "c"]


def test_relative_paths_start_at_the_home_and_files_belong_to_the_user(
    sandbox: Sandbox, directory: str
) -> None:
    relative = directory.removeprefix("/home/user/")
    sandbox.files.write(f"{relative}/mine", "hi")
    info = sandbox.files.get_info(f"{directory}/mine")
    assert (info.owner, info.group, info.size, info.type) == ("user", "user", 2, FileType.FILE)
    assert (info.name, info.path, info.permissions) == ("mine", f"{directory}/mine", "-rw-r--r--")


def test_a_listing_goes_as_deep_as_asked(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write_files(
        [{"path": f"{directory}/{name}", "data": ""} for name in ("b/two", "a", "b/c/three")]
    )
    shallow = [entry.path.removeprefix(directory) for entry in sandbox.files.list(directory)]
    deep = [entry.path.removeprefix(directory) for entry in sandbox.files.list(directory, depth=3)]
    assert shallow == ["/a", "/b"]
    assert deep == ["/a", "/b", "/b/c", "/b/c/three", "/b/two"]
    with pytest.raises(NotFoundException):
        sandbox.files.list(f"{directory}/missing")


def test_a_link_names_what_it_leads_to(sandbox: Sandbox, directory: str) -> None:
    sandbox.commands.run(f"cd {directory} && mkdir real && ln -s real link", timeout=BOUND_S)
    info = sandbox.files.get_info(f"{directory}/link")
    assert (info.type, info.symlink_target) == (FileType.SYMLINK, f"{directory}/real")


def test_files_are_renamed_and_removed(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/old", "x")
    assert sandbox.files.rename(f"{directory}/old", f"{directory}/new").path == f"{directory}/new"
    assert not sandbox.files.exists(f"{directory}/old")
    assert sandbox.files.exists(f"{directory}/new")
    sandbox.files.remove(f"{directory}/new")
    assert not sandbox.files.exists(f"{directory}/new")
    assert not sandbox.files.make_dir(directory)
    with pytest.raises(NotFoundException):
        sandbox.files.read(f"{directory}/new")
    with pytest.raises(InvalidArgumentException):
        sandbox.files.read(directory)


def test_what_the_user_may_not_make_is_made_for_the_user(sandbox: Sandbox) -> None:
    sandbox.files.write("/app/source/x", "hello")
    assert sandbox.files.make_dir("/app/made/here")
    assert not sandbox.files.make_dir("/app/made/here")
    for path in ("/app", "/app/source", "/app/source/x", "/app/made", "/app/made/here"):
        assert sandbox.files.get_info(path).owner == "user"
    assert sandbox.commands.run("cat /app/source/x; touch /app/mine", timeout=BOUND_S).stdout == "hello"
    assert sandbox.files.make_dir("/root/hidden")
    # a link of root, which leads on
    sandbox.commands.run("mkdir /far; ln -s /far /near", user="root", timeout=BOUND_S)
    sandbox.files.write("/near/y", "there")
    assert sandbox.files.get_info("/far/y").owner == "user"
    # a link of the user, which would lead to a file of root
    sandbox.commands.run("ln -s /etc/shadow /tmp/planted", timeout=BOUND_S)
    with pytest.raises(Exception, match="permission denied"):
        sandbox.files.write("/tmp/planted", "mine")
    assert "root:" in sandbox.files.read("/etc/shadow", user="root")


def test_what_only_root_may_read_is_kept_from_the_user(sandbox: Sandbox) -> None:
    with pytest.raises(Exception, match="permission denied"):
        sandbox.files.read("/etc/shadow")
    assert "root:" in sandbox.files.read("/etc/shadow", user="root")


def test_metadata_stays_with_its_file(sandbox: Sandbox, directory: str) -> None:
    sandbox.files.write(f"{directory}/tagged", "x", metadata={"origin": "test"})
    assert sandbox.files.get_info(f"{directory}/tagged").metadata == {"origin": "test"}
    sandbox.files.write(f"{directory}/tagged", "y")
    assert not sandbox.files.get_info(f"{directory}/tagged").metadata


def test_a_polled_watch_sees_a_new_file_come_and_go(sandbox: Sandbox, directory: str) -> None:
    handle = sandbox.files.watch_dir(directory, recursive=True)
    events: list[FilesystemEvent] = []

    def seen(kind: FilesystemEventType, name: str) -> bool:
        events.extend(handle.get_new_events())
        return any(event.type == kind and event.name == name for event in events)

    sandbox.files.write(f"{directory}/note", "x")
    poll(lambda: seen(FilesystemEventType.WRITE, "note"))
    kinds = [event.type for event in events if event.name == "note"]
    assert kinds[:3] == [FilesystemEventType.CREATE, FilesystemEventType.CHMOD, FilesystemEventType.WRITE]
    sandbox.files.make_dir(f"{directory}/below")
    sandbox.files.write(f"{directory}/below/inner", "x")
    poll(lambda: seen(FilesystemEventType.CREATE, "below/inner"))
    sandbox.files.remove(f"{directory}/note")
    poll(lambda: seen(FilesystemEventType.REMOVE, "note"))
    handle.stop()


def test_an_async_watch_streams_its_events(sandbox: Sandbox, directory: str) -> None:
    async def main() -> None:
        box = await AsyncSandbox.create()
        found: asyncio.Queue[FilesystemEvent] = asyncio.Queue()
        handle = await box.files.watch_dir(directory, on_event=found.put_nowait, timeout=BOUND_S)
        await box.files.write(f"{directory}/note", "x")
        async with asyncio.timeout(BOUND_S):
            while True:
                event = await found.get()
                if (event.type, event.name) == (FilesystemEventType.WRITE, "note"):
                    break
        await handle.stop()  # type: ignore[no-untyped-call]  # E2B's own

    asyncio.run(main())


def test_async_files_are_written_listed_and_streamed(sandbox: Sandbox, directory: str) -> None:
    async def main() -> None:
        box = await AsyncSandbox.create()
        await box.files.write(f"{directory}/a", "one")
        await box.files.write(f"{directory}/b", b"x" * 2_000_000)
        assert [entry.name for entry in await box.files.list(directory)] == ["a", "b"]
        assert await box.files.read(f"{directory}/a") == "one"
        size = 0
        async for chunk in await box.files.read(f"{directory}/b", format="stream"):
            size += len(chunk)
        assert size == 2_000_000

    asyncio.run(main())
