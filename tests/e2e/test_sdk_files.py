from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import anyio
import pytest

from atoll import AsyncSandbox, Sandbox
from atoll.errors import EditError, FileDeniedError, FileError

MIB = 1 << 20


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_text_and_bytes_come_back_as_they_were_written(sandbox: Sandbox) -> None:
    files = sandbox.files
    info = files.write("notes/today.txt", "schön\n")
    assert (info.path, info.size_bytes, info.owner) == ("/home/user/notes/today.txt", 7, "user")
    assert files.read("~/notes/today.txt") == "schön\n"
    files.write("notes/run", [b"#!/bin/sh\n", b"echo ran\n"], mode=0o755)
    assert sandbox.exec(["/home/user/notes/run"]).stdout == "ran\n"
    files.write("notes/raw", b"\0\xff")
    assert files.read_bytes("notes/raw") == b"\0\xff"


def test_an_edit_changes_one_place_and_keeps_mode_and_owner(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write("edited/run", b"\xff one\ntwo\n", mode=0o750)
    info = files.edit("edited/run", "one\n", "1\n")
    assert (info.mode, info.owner) == (0o750, "user")
    assert files.read_bytes("edited/run") == b"\xff 1\ntwo\n"
    with pytest.raises(EditError, match=r"edited/run.*nearest is from line 2"):
        files.edit("edited/run", "two.", "2")
    with pytest.raises(FileNotFoundError):
        files.edit("edited/nosuch", "a", "b")
    assert files.read_bytes("edited/run") == b"\xff 1\ntwo\n"


def test_names_are_listed_moved_and_removed(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.mkdir("tree/a/b")
    files.mkdir("tree/a/b")
    files.write("tree/a/b/deep", "x")
    files.write("tree/top", "y")
    sandbox.exec(["ln", "-s", "top", "tree/link"]).check()
    assert [info.name for info in files.list("tree")] == ["a", "link", "top"]
    assert [info.path for info in files.list("tree", depth=3)][-1] == "/home/user/tree/top"
    assert len(files.list("tree", depth=3)) == 5
    assert (files.stat("tree/link").kind, files.stat("tree/link").target) == ("symlink", "top")
    assert files.stat("tree/link", follow=True).kind == "file"
    assert files.move("tree/top", "tree/a/moved").name == "moved"
    assert not files.exists("tree/top")
    assert not files.exists("tree/a/moved/below")
    for path in ("/dev/null", "x" * 300):
        with pytest.raises(FileError):
            files.read(path)
    files.delete("tree")
    assert not files.exists("tree")


def test_errors_are_the_ones_that_open_would_raise(sandbox: Sandbox) -> None:
    files = sandbox.files
    with pytest.raises(FileNotFoundError, match="nosuch"):
        files.read("nosuch")
    with pytest.raises(FileNotFoundError):
        files.delete("nosuch")
    with pytest.raises(IsADirectoryError):
        files.read("/home/user")
    with pytest.raises(NotADirectoryError):
        files.list("/etc/passwd")
    with pytest.raises(FileDeniedError):
        files.write("/etc/passwd", "mine now")
    with pytest.raises(FileDeniedError):
        files.read("/etc/shadow")
    assert files.read("/etc/shadow", user="root").startswith("root:")


def test_a_directory_goes_there_and_back(sandbox: Sandbox, tmp_path: Path) -> None:
    source = tmp_path / "project"
    (source / "src/empty").mkdir(parents=True)
    (source / "src/main.py").write_text("print('hi')\n")
    (source / "run").write_text("#!/bin/sh\necho up\n")
    (source / "run").chmod(0o755)
    (source / "latest").symlink_to("src/main.py")
    (source / "data").write_bytes(os.urandom(2 * MIB + 3))
    up: list[tuple[int, int | None]] = []
    sandbox.files.upload(source, "project", on_progress=lambda done, total: up.append((done, total)))
    size = 2 * MIB + 3 + 12 + 18
    assert up[-1] == (size, size)
    assert (
        sandbox.run("./run && python3 latest && stat -c %U run src", cwd="project").stdout
        == "up\nhi\nuser\nuser\n"
    )
    sandbox.run("ln -s /usr/bin/python3 python; mkfifo pipe; ln data hard", cwd="project").check()
    back = tmp_path / "back"
    sandbox.files.download("project", back)
    assert (back / "data").read_bytes() == (source / "data").read_bytes()
    assert (back / "hard").samefile(back / "data")
    assert os.access(back / "run", os.X_OK)
    assert (back / "src/empty").is_dir()
    assert os.readlink(back / "python") == "/usr/bin/python3"
    assert os.readlink(back / "latest") == "src/main.py"
    assert not (back / "pipe").exists()


def test_a_big_file_goes_there_and_back(sandbox: Sandbox, tmp_path: Path) -> None:
    big = tmp_path / "big"
    with big.open("wb") as file:
        for _ in range(32):
            file.write(os.urandom(MIB))
    digest = hashlib.sha256(big.read_bytes()).hexdigest()
    sandbox.files.upload(big, "big")
    assert sandbox.run("sha256sum big", timeout_s=300).stdout.split()[0] == digest
    told: list[tuple[int, int | None]] = []
    sandbox.files.download(
        "big", tmp_path / "again", on_progress=lambda done, total: told.append((done, total))
    )
    assert told[-1] == (32 * MIB, 32 * MIB)
    assert hashlib.sha256((tmp_path / "again").read_bytes()).hexdigest() == digest


@pytest.mark.parametrize("recursive", [False, True])
def test_changes_are_told_while_they_happen(sandbox: Sandbox, recursive: bool) -> None:
    place = f"watched-{recursive}"
    sandbox.files.mkdir(f"{place}/below")
    with sandbox.files.watch(place, recursive=recursive) as watch:
        sandbox.run("echo x > below/deep; mkdir later; echo x > end", cwd=place).check()
        seen = set()
        for event in watch:
            seen.add(event.path)
            if event.path == "end":
                break
    assert ("below/deep" in seen) == recursive
    assert "later" in seen


def test_the_async_files_do_the_same(sandbox: Sandbox, tmp_path: Path) -> None:
    async def work() -> None:
        async with await AsyncSandbox.connect(sandbox.id) as twin:
            files = twin.files

            async def pieces() -> AsyncIterator[str]:
                for number in range(3):
                    yield f"{number}\n"

            await files.write("async/a", pieces())
            assert await files.read("async/a") == "0\n1\n2\n"
            await files.download("async", tmp_path / "down")
            await files.upload(tmp_path / "down", "async/up")
            assert [info.name for info in await files.list("async/up")] == ["a"]
            async with await files.watch("async") as watch:
                await files.write("async/new", "x")
                async for event in watch:
                    assert event.path == "new"
                    break

    anyio.run(work)
    assert (tmp_path / "down/a").read_text() == "0\n1\n2\n"


def test_a_directory_with_an_unreadable_file_is_not_downloaded_and_the_file_named(
    sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox.run("mkdir -p closed && echo x > closed/a && chmod 0 closed/a").check()
    with pytest.raises(FileDeniedError, match="closed/a: permission denied"):
        sandbox.files.download("closed", tmp_path / "closed")
