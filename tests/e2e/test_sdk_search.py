from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from atoll import AsyncSandbox, Sandbox
from atoll.errors import FileDeniedError, FileTakenError, InvalidSpecError


@pytest.fixture(scope="module")
def sandbox(module_home: Path) -> Iterator[Sandbox]:
    with Sandbox.create() as sandbox:
        yield sandbox


def test_many_files_are_written_found_and_searched(sandbox: Sandbox) -> None:
    files = sandbox.files
    written = files.write_many(
        {
            "project/src/moon.py": "def tide(hours):\n    return hours\n",
            "project/src/deep/sun.py": b"import moon\nmoon.tide(3)\n",
            "~/project/README.md": "# Tide\n",
            "/home/user/project/.env": "TIDE=1\n",
            "project/node_modules/x.py": "tide\n",
            "project/image.png": b"tide\0",
        }
    )
    assert [info.path for info in written][:2] == [
        "/home/user/project/src/moon.py",
        "/home/user/project/src/deep/sun.py",
    ]
    assert {(info.owner, info.mode) for info in written} == {("user", 0o644)}

    found = files.search(r"tide\(", "project")
    assert [(one.path.rpartition("/")[2], one.line, one.column) for one in found] == [
        ("sun.py", 2, 6),
        ("moon.py", 1, 5),
    ]
    assert found.matches[1].text == "def tide(hours):"
    assert len(files.search("tide", "project", ignore_case=True, glob=["!node_modules"])) == 3
    assert len(files.search("tide", "project", ignore_case=True, hidden=True)) == 5
    assert len(files.search("tide(", "project", literal=True, glob="src/*.py")) == 1
    assert files.search("tide", "project", max_matches=1).truncated
    with pytest.raises(InvalidSpecError, match="pattern"):
        files.search("tide(", "project")
    with pytest.raises(FileNotFoundError):
        files.search("x", "nosuch")

    assert [info.name for info in files.glob("src/**/*.py", "project")] == ["sun.py", "moon.py"]
    assert [info.name for info in files.glob("*", "project")] == [
        "README.md",
        "image.png",
        "node_modules",
        "src",
    ]
    assert [info.name for info in files.glob(".e*", "project")] == [".env"]


def test_a_search_has_the_rights_of_its_user(sandbox: Sandbox) -> None:
    sandbox.files.write_many({"/srv/closed/secret": "moon\n", "/srv/open": "moon\n"}, user="root")
    sandbox.files.chmod("/srv/closed", 0o700, user="root")
    found = sandbox.files.search("moon", "/srv")
    assert ([one.path for one in found], found.unreadable_files) == (["/srv/open"], 1)
    assert len(sandbox.files.search("moon", "/srv", user="root")) == 2
    assert [info.name for info in sandbox.files.glob("**", "/srv")] == ["closed", "open"]


def test_copies_modes_and_owners(sandbox: Sandbox) -> None:
    files = sandbox.files
    files.write_many({"copied/a/run": "#!/bin/sh\necho ran\n", "copied/a/data": "x"}, mode=0o750)
    assert files.copy("copied/a", "copied/new/b").kind == "directory"
    assert sandbox.exec(["/home/user/copied/new/b/run"], check=True).stdout == "ran\n"
    assert files.copy("copied/a/data", "copied/new/b/run").mode == 0o750
    assert files.read("copied/new/b/run") == "x"
    with pytest.raises(FileTakenError):
        files.copy("copied/a/data", "copied/new")

    files.chmod("copied/new", 0o700, recursive=True)
    assert {info.mode for info in files.list("copied/new", depth=3)} == {0o700}
    files.chown("/home/user/copied/new", "root", recursive=True, user="root")
    assert {info.owner for info in files.list("/home/user/copied/new", user="root", depth=3)} == {"root"}
    with pytest.raises(FileDeniedError):
        files.chown("copied/a", "root")
    with pytest.raises(FileDeniedError):
        files.chmod("/etc/passwd", 0o777)


def test_a_reader_never_finds_half_a_file(sandbox: Sandbox) -> None:
    sandbox.files.write("whole/f", "a" * 100_000)
    reader = sandbox.processes.start("cd whole; while [ ! -e stop ]; do wc -c < f; done | sort -u")
    for length in (200_000, 100_000) * 10:
        sandbox.files.write_many({"whole/f": "b" * length})
    sandbox.files.write("whole/stop", "")
    assert set(reader.wait().stdout.split()) <= {"100000", "200000"}


def test_the_async_files_search_too(sandbox: Sandbox) -> None:
    async def work() -> None:
        async with await AsyncSandbox.connect(sandbox.id) as twin:
            await twin.files.write_many({"async/a": "one\ntwo\n"})
            assert [one.line for one in await twin.files.search("two", "async")] == [2]

    anyio.run(work)
